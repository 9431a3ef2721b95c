"""FSDP2 through accelerate: one agent's weights split over its processes, layer by layer.

A shard is float32, and the optimizer's masters are views of it; layers are gathered in the run's number type just
before use. All calls here are collective: every rank makes them, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin, ParallelismConfig, fsdp2_prepare_model
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from workers.model.process_group import Ranks


def shard(models: Sequence[Any], dtype: torch.dtype, device: torch.device, ranks: Ranks) -> None:
    """Split float32 models on the CPU over the ranks, in place; they compute in `dtype`. Once per process."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",  # each decoder layer by itself
        mixed_precision_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
        state_dict_type="FULL_STATE_DICT",
    )
    accelerator = Accelerator(cpu=device.type == "cpu", fsdp_plugin=plugin)
    # Accelerator accepts these on GPUs only; the preparation itself works on CPUs as well.
    state, mesh = accelerator.state, ParallelismConfig(dp_shard_size=ranks.size)
    state.fsdp_plugin, state.parallelism_config = plugin, mesh
    state.device_mesh = mesh.get_device_mesh(device.type)
    for model in models:
        fsdp2_prepare_model(accelerator, model)


def local(tensor: Tensor) -> Tensor:
    """This rank's share of a tensor, in the same memory; a tensor that is not split is returned unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, in every rank; a tensor that is not split is returned unchanged."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@contextmanager
def whole_weights(model: Any) -> Iterator[None]:
    """Within: every rank holds all weights, so that it can sample alone, as many tokens as it needs."""
    layers = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for layer in layers:
        layer.set_reshard_after_forward(False, recurse=False)
    with torch.no_grad():  # the first pass gathers the weights, in all ranks together
        model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), use_cache=False)
    try:
        yield
    finally:
        for layer in layers:
            layer.set_reshard_after_forward(layer is not model, recurse=False)
            layer.reshard()


def whole_model(model: Any, dtype: torch.dtype) -> Any:
    """In the first rank, an ordinary model with all weights on the CPU, in `dtype`; None in the others."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state: dict[str, Any] = get_model_state_dict(model, options=options)
    if not state:
        return None
    # fully_shard puts its own classes before the model's
    plain_class: Any = next(each for each in type(model).__mro__ if not issubclass(each, FSDPModule))
    with torch.device("meta"):
        whole = plain_class(model.config)
    whole.load_state_dict({name: value.to(dtype) for name, value in state.items()}, strict=False, assign=True)
    whole.tie_weights()
    whole.generation_config = model.generation_config
    return whole


def clip_grad_norm(parameters: Sequence[Tensor], max_norm: float, ranks: Ranks) -> float:
    """Scale gradients, split over the ranks, down to `max_norm`; returns their norm before scaling."""
    squares = sum(p.grad.square().sum(dtype=torch.float64).item() for p in parameters if p.grad is not None)
    norm = math.sqrt(ranks.sum(squares)) if math.isfinite(squares) else math.nan
    norm = norm if ranks.all(math.isfinite(norm)) else math.nan
    if math.isfinite(norm):
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.tensor(norm))
    return norm
