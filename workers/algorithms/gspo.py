"""GSPO, each agent alone: the sequence-level clipped loss. Pure tensor functions.

The clipped objective is not hacpo.py's, so that "HACPO with one agent is GSPO" compares two derivations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workers.algorithms.base import tensors
from workers.algorithms.base.spec import AlgorithmSpec, MicroBatch
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


def loss(
    logps: Tensor,
    completion_mask: Tensor,
    old_mean_logp: Tensor,
    advantages: Tensor,
    config: Any,
    *,
    ref_logps: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The GSPO loss of one micro-batch, Eq. (47) in sequence-level form.

    logps, completion_mask, ref_logps: (b, T).  old_mean_logp, advantages: (b,).
    config: epsilon, epsilon_high, beta, max_log_ratio.  denominator: rows planned for the whole mini-batch; default: b.
    Returns the scalar and tensors.row_stats.
    """
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    mask, logps, advantages = completion_mask.to(dtype), logps.to(dtype), advantages.to(dtype)
    length = mask.sum(dim=1).clamp(min=1)  # (b,)
    raw = (logps * mask).sum(dim=1) / length - old_mean_logp.to(dtype)  # (b,)
    log_ratio = raw.clamp(-config.max_log_ratio, config.max_log_ratio)  # (b,)
    ratio = log_ratio.exp()  # (b,)
    low, high = 1 - config.epsilon, 1 + config.epsilon_high
    clipped = ratio.detach().clamp(low, high)  # (b,)
    unclipped_is_minimum = ratio.detach() * advantages <= clipped * advantages  # (b,)
    objective = torch.where(unclipped_is_minimum, ratio, clipped) * advantages  # (b,)
    penalised = torch.ones_like(length, dtype=torch.bool)  # (b,)
    total, kl = tensors.loss_and_kl(objective, logps, mask, penalised, config.beta, ref_logps, denominator)
    side = (ratio > high).int() - (ratio < low).int()  # (b,)
    flows = unclipped_is_minimum & (raw.abs() <= config.max_log_ratio) & (advantages != 0)  # (b,)
    return total, tensors.row_stats(log_ratio, clipped, side, flows, objective, kl)


class Gspo(AlgorithmSpec):
    """GSPO: each agent alone, with one ratio for a sequence."""

    label: ClassVar[str] = "GSPO"
    summary: ClassVar[str] = "each agent alone"

    name: Literal["gspo"] = "gspo"

    def loss(self, batch: MicroBatch, update_index: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        return loss(
            *(batch.logps, batch.mask, batch.old_mean_logp, batch.advantages, self),
            ref_logps=batch.ref_logps,
            denominator=denominator,
        )


class GspoX2(Gspo):
    """GSPO with twice the rollouts and half the mini-batch, so twice the updates: the baseline of equal cost."""

    label: ClassVar[str] = "GSPOx2"
    summary: ClassVar[str] = "each agent alone, with double rollouts and updates (the equal-cost baseline)"
    rollouts_multiplier: ClassVar[int] = 2

    name: Literal["gspox2"] = "gspox2"  # type: ignore[assignment]
