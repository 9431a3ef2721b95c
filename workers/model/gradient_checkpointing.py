"""Gradient checkpointing: a decoder layer keeps its input only, and is computed again in the backward pass.

transformers' own switch acts in training mode only, which would also switch on dropout; models here stay in
evaluation mode. Bit for bit the same gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def recompute_layers(model: Any) -> None:
    """From here on, layers of `model` are computed again. After any copy of it: a copy would run these layers.

    Error: ValueError where the model has no such layers.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layers that gradient checkpointing knows: set "
            "compute.gradient_checkpointing to false"
        )
    for layer in layers:
        layer.forward = partial(_forward, layer.forward)


def _forward(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():  # while sampling and scoring nothing is kept anyway
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
