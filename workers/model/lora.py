"""LoRA: train small low-rank matrices beside frozen weights, and export them, and the sum as an ordinary model.

The adapter-off model is the starting one, so the KL reference costs no second copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, TaskType, inject_adapter_in_model
from peft.tuners.lora import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from torch import Tensor

from workers.contract.spec.agent import AgentSpec
from workers.model import sharding

ADAPTER = "default"
ADAPTER_FOLDER = "adapter"  # in a model's folder
Matrices = dict[str, tuple[Tensor, Tensor]]  # A (r, in) and B (out, r) on the CPU, by the name of their layer


def add_adapter(model: Any, agent: AgentSpec, seed: int) -> None:
    """Put matrices of rank lora_rank beside every linear layer but the output's; only they are trained.

    seed: of the random matrices. The others are zero, so the model starts unchanged.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(_config(agent, "all-linear"), model, adapter_name=ADAPTER)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name)
    model.eval()


def _config(agent: AgentSpec, layers: str | list[str]) -> LoraConfig:
    return LoraConfig(
        r=agent.lora_rank,
        lora_alpha=agent.lora_alpha,  # type: ignore[arg-type]  # a ratio: any number works
        target_modules=layers,
        lora_dropout=0.0,
        bias="none",
        task_type=TaskType.CAUSAL_LM,
        base_model_name_or_path=agent.model,
        revision=agent.revision,
    )


@contextmanager
def adapter_off(model: Any) -> Iterator[None]:
    """Within: the starting model. requires_grad stays, which FSDP2 reads when it gathers a layer."""
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


@torch.no_grad()
def matrices(model: Any) -> Matrices:
    """The adapter of a model; of a sharded one in every rank, which all call this."""
    return {
        name: (_whole(layer.lora_A[ADAPTER]), _whole(layer.lora_B[ADAPTER]))
        for name, layer in model.named_modules()
        if isinstance(layer, Linear)
    }


def _whole(linear: Any) -> Tensor:
    return sharding.whole(linear.weight).detach().to("cpu")


@torch.no_grad()
def merge_into(start: Any, model: Any, adapter: Matrices) -> float | None:
    """Add the adapter of `model` to the weights of `start`, its starting model without adapters, in float32.

    Returns the share of the weights that this changes which bfloat16 would keep apart from their start; None if none
    changes.
    """
    num_changed = num_surviving = 0
    for name, (a, b) in adapter.items():
        layer, weight = model.get_submodule(name), start.get_submodule(name).weight
        delta = (b.float() @ a.float()) * layer.scaling[ADAPTER]  # (out, in)
        total = weight + (delta.T if layer.fan_in_fan_out else delta).to(weight.device)
        num_changed += int((total != weight).sum())
        num_surviving += int((total.bfloat16() != weight.bfloat16()).sum())
        weight.copy_(total)
    return num_surviving / num_changed if num_changed else None


def save_adapter(folder: Path, agent: AgentSpec, adapter: Matrices) -> None:
    """The adapter as a folder of PEFT, which vLLM and other programs read too."""
    folder.mkdir(parents=True, exist_ok=True)
    layers = sorted({name.rpartition(".")[2] for name in adapter})
    config = _config(agent, layers)
    config.target_modules = layers  # PEFT made a set of it, which each process writes in another order
    config.save_pretrained(str(folder))
    tensors = {
        f"base_model.model.{name}.lora_{kind}.weight": matrix.contiguous()
        for name, pair in adapter.items()
        for kind, matrix in zip("AB", pair, strict=True)
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
