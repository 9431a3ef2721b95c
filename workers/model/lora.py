"""LoRA: train small low-rank matrices beside frozen weights, and export the sum as an ordinary model.

The adapter-off model is the starting one, so the KL reference costs no second copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import Linear
from peft.tuners.tuners_utils import BaseTunerLayer

from workers.contract.spec.agent import AgentSpec

ADAPTER = "default"


def add_adapter(model: Any, agent: AgentSpec, seed: int) -> None:
    """Put matrices of rank lora_rank beside every linear layer but the output's; only they are trained.

    seed: of the random matrices. The others are zero, so the model starts unchanged.
    """
    config = LoraConfig(
        r=agent.lora_rank,
        lora_alpha=agent.lora_alpha,  # type: ignore[arg-type]  # a ratio: any number works
        target_modules="all-linear",
        lora_dropout=0.0,
        bias="none",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name)
    model.eval()


@contextmanager
def adapter_off(model: Any) -> Iterator[None]:
    """Within: the starting model."""
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
        for name, parameter in model.named_parameters():  # enabling touches requires_grad
            parameter.requires_grad_(".lora_" in name)


@torch.no_grad()
def merge_into(start: Any, model: Any) -> None:
    """Add the adapters of `model` to the weights of `start`, its starting model without adapters."""
    for name, layer in model.named_modules():
        if isinstance(layer, Linear):
            weight = start.get_submodule(name).weight
            weight.copy_(weight.float() + layer.get_delta_weight(ADAPTER).float())
