"""Before an agent's first step: on which device, in which numbers, and its model from a folder or the hub."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging

from workers.contract.memory.footprint import gpu_of
from workers.contract.spec.run import RunSpec

CPU = torch.device("cpu")


def quiet_transformers() -> None:
    """Progress bars of weight loading do not belong into trainer.log."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def choose_device(spec: RunSpec, agent_index: int = 0, rank: int = 0) -> torch.device:
    """The device of one process of one agent. Error: ValueError where it asks for a GPU that is not there."""
    compute = spec.compute
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("compute.device is cuda but this machine has no usable GPU: choose auto or cpu")
    if compute.device == "cpu" or not torch.cuda.is_available():
        return CPU
    processes, gpus = compute.processes_per_agent, torch.cuda.device_count()
    if processes > gpus:
        raise ValueError(
            f"compute.processes_per_agent is {processes}, each with a GPU of its own, but there are {gpus}"
        )
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
        # transformers would fill them with random numbers and go on
        raise ValueError(f"{location} lacks {len(absent)} tensors of its model, such as {absent[0]}: not whole weights")
    model.generation_config = writable(model.generation_config)
    # No dropout anywhere: the old log-probabilities must be those of the policy that is updated.
    return model.to(device).eval()


def writable(settings: GenerationConfig) -> GenerationConfig:
    """Generation settings without those that transformers reads but refuses to write, such as a temperature without
    sampling: many models come with one, and no checkpoint may fail for it. Only the stop ids are used here.
    """
    if _can_be_written(settings):
        return settings
    copy = type(settings)()
    modes = ("do_sample", "num_beams")  # others are allowed by these
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
