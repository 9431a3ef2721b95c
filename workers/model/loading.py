"""Before an agent's first step: its device, its number type, and its model from a folder or the hub."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging

from workers.contract.memory.footprint import gpu_of
from workers.contract.spec.run import RunSpec
from workers.tokenizer_files import read_tokenizer

CPU = torch.device("cpu")


def quiet_transformers() -> None:
    """Keep the progress bars of weight loading out of trainer.log."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def choose_device(spec: RunSpec, agent_index: int = 0, rank: int = 0) -> torch.device:
    """The device of one process of one agent. Error: ValueError if the run needs more GPUs than there are."""
    compute = spec.compute
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("compute.device is cuda but this machine has no usable GPU: choose auto or cpu")
    if compute.device == "cpu" or not torch.cuda.is_available():
        return CPU
    processes, gpus = compute.processes_per_agent, torch.cuda.device_count()
    if processes > gpus:
        raise ValueError(f"compute.processes_per_agent is {processes}, one GPU each, but this machine has {gpus}")
    return torch.device("cuda", gpu_of(compute, agent_index, rank, gpus))


def choose_dtype(spec: RunSpec, device: torch.device) -> torch.dtype:
    """The type of the weights."""
    if spec.compute.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if spec.compute.dtype == "bfloat16" else torch.float32


def load_model(location: str, revision: str | None, dtype: torch.dtype, device: torch.device) -> Any:
    """A causal language model from a folder or the hub; safetensors only. Errors: OSError, ValueError."""
    causal_lm: Any = AutoModelForCausalLM.from_pretrained(
        location,
        revision=revision,
        dtype=dtype,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    model, loaded = causal_lm
    if absent := [*loaded["missing_keys"], *loaded["mismatched_keys"]]:
        # transformers would fill them with random numbers
        raise ValueError(
            f"{location} lacks {len(absent)} tensors of its model, such as {absent[0]}: incomplete weights"
        )
    model.generation_config = writable(model.generation_config)
    # No dropout anywhere: the old log-probabilities must be those of the policy that is updated.
    return model.to(device).eval()


def load_tokenizer(location: str, revision: str | None) -> Any:
    """A tokenizer from a folder or the hub. Errors: OSError; ValueError if its files hold none."""
    try:
        return read_tokenizer(location, revision)
    except OSError:  # it says what is missing, and where
        raise
    except Exception as error:  # broken files raise all kinds of exceptions here
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the tokenizer of {location} does not load ({type(error).__name__}: {reason}): "
            "copy the model's tokenizer.json and tokenizer_config.json there"
        ) from error


def writable(settings: GenerationConfig) -> GenerationConfig:
    """Generation settings without those that transformers reads but refuses to write.

    Many models come with some, such as a temperature without sampling, and no checkpoint may fail because of them.
    Only the stop ids are used here.
    """
    if _can_be_written(settings):
        return settings
    copy = type(settings)()
    modes = ("do_sample", "num_beams")  # others are allowed only with these
    for name, value in sorted(vars(settings).items(), key=lambda item: item[0] not in modes):
        before = getattr(copy, name, None)
        setattr(copy, name, value)
        if not _can_be_written(copy):
            setattr(copy, name, before)
    return copy


def _can_be_written(settings: GenerationConfig) -> bool:
    try:
        settings.validate(strict=True)
    except ValueError:
        return False
    return True


def recompute_layers(model: Any) -> None:
    """Gradient checkpointing: a decoder layer keeps its input only, and is computed again in the backward pass.

    The gradients are the same bit for bit. transformers' own switch acts in training mode only, which would also enable
    dropout. Call it after any copy of `model`: a copy would run these layers. Error: ValueError without such layers.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layers that gradient checkpointing knows: set "
            "compute.gradient_checkpointing to false"
        )
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():  # while sampling and scoring nothing is kept anyway
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
