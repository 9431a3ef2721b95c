"""GSPO, each agent alone: the sequence-level clipped loss. Pure tensor functions.

The clipped objective is not hacpo.py's, so that "HACPO with one agent is GSPO" compares two derivations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from workers.algorithms.base import tensors
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.base.tensors import MicroBatch
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


def loss(batch: MicroBatch, config: AlgorithmSpec, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
    """The GSPO loss of one micro-batch, Eq. (47) in sequence-level form: the scalar and tensors.row_stats."""
    batch = batch.in_loss_precision()
    length = batch.mask.sum(dim=1).clamp(min=1)  # (b,)
    raw = (batch.logps * batch.mask).sum(dim=1) / length - batch.old_mean_logp  # (b,)
    log_ratio = raw.clamp(-config.max_log_ratio, config.max_log_ratio)  # (b,)
    ratio = log_ratio.exp()  # (b,)
    low, high = config.own_band()
    clipped = ratio.detach().clamp(low, high)  # (b,)
    unclipped_is_minimum = ratio.detach() * batch.advantages <= clipped * batch.advantages  # (b,)
    objective = torch.where(unclipped_is_minimum, ratio, clipped) * batch.advantages  # (b,)
    penalised = torch.ones_like(length, dtype=torch.bool)  # (b,)
    total, kl = tensors.loss_and_kl(objective, batch, penalised, config.beta, denominator)
    side = (ratio > high).int() - (ratio < low).int()  # (b,)
    flows = unclipped_is_minimum & (raw.abs() <= config.max_log_ratio) & (batch.advantages != 0)  # (b,)
    return total, tensors.row_stats(log_ratio, clipped, side, flows, objective, kl)


class Gspo(AlgorithmSpec):
    """GSPO: each agent alone, with one ratio for a sequence."""

    label: ClassVar[str] = "GSPO"
    summary: ClassVar[str] = "each agent alone"

    name: Literal["gspo"] = "gspo"

    def loss(self, batch: MicroBatch, update_index: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        return loss(batch, self, denominator)


class GspoX2(Gspo):
    """GSPO with twice the rollouts and half the mini-batch, so twice the updates: the baseline of equal cost."""

    label: ClassVar[str] = "GSPOx2"
    summary: ClassVar[str] = "each agent alone, with double rollouts and updates (the equal-cost baseline)"
    rollouts_multiplier: ClassVar[int] = 2

    name: Literal["gspox2"] = "gspox2"  # type: ignore[assignment]
