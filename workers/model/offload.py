"""Moves what an agent holds between its device and the machine's memory, so that agents can take turns on one GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def move_tensors(
    models: Iterable[Any], masters: Iterable[Tensor], optimizer: torch.optim.Optimizer, to: torch.device
) -> None:
    """Bring models, and those masters with their optimizer state, to a device. All stay the objects they are."""
    for model in models:
        model.to(to)  # replaces the data of each parameter
    for master in masters:
        master.data = master.data.to(to)
        state = optimizer.state.get(master, {})
        for key, value in state.items():
            state[key] = value.to(to)
    if torch.cuda.is_available():  # what is free now may be wanted by another process
        torch.cuda.empty_cache()
