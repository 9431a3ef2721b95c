"""Micro-batches of numbers worked out by hand, and what a rule makes of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.base.tensors import MicroBatch
from workers.contract.spec.run import RunSpec

DOUBLE = torch.float64


def algorithm(**changes: Any) -> AlgorithmSpec:
    """A rule of two agents with its numbers filled in, as the loss gets it."""
    agents = [{"name": name, "model": "m"} for name in "ab"]
    return RunSpec.model_validate({"agents": agents, "data": {"train_path": "q"}, "algorithm": changes}).rule


def micro_batch(logps: Tensor, **columns: Any) -> MicroBatch:
    """Own rows of advantage 1 whose old log-probabilities are 0; `columns` changes that."""
    ones = torch.ones(len(logps), dtype=DOUBLE)
    values = {
        "mask": torch.ones_like(logps, dtype=torch.bool),
        "old_mean_logp": 0 * ones,
        "advantages": ones,
        "is_self": ones > 0,
        "omega": ones,
        "source_lengths": logps.shape[1] * ones,
        "old_logps": torch.zeros_like(logps),
    }
    return MicroBatch(logps, **{**values, **columns})


def one_row(
    ratio: float, advantage: float, *, is_self: bool, omega: float = 1.0, m: int = 0, **changes: Any
) -> tuple[float, float, dict[str, float]]:
    """Loss, its gradient by log s, and stats of one rollout of two tokens whose sequence ratio is `ratio`.

    Both log-probabilities are log(ratio), against a source mean of 0. d log s / d token = 1/2.
    """
    logps = torch.full((1, 2), math.log(ratio), dtype=DOUBLE, requires_grad=True)
    reference = changes.pop("reference", None)
    batch = micro_batch(
        logps,
        advantages=torch.tensor([advantage], dtype=DOUBLE),
        is_self=torch.tensor([is_self]),
        omega=torch.tensor([omega], dtype=DOUBLE),
        source_lengths=torch.tensor([changes.pop("source_length", 2)]),
        ref_logps=None if reference is None else torch.full((1, 2), reference, dtype=DOUBLE),
    )
    loss, stats = algorithm(**changes).loss(batch, m, 1)
    loss.backward()
    assert logps.grad is not None
    return loss.item(), logps.grad.sum().item(), {name: value.item() for name, value in stats.items()}
