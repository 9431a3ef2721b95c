"""Naive sharing, the paper's negative control: a joint plain mean, no omega, GSPO's clip on every rollout.

Two kinds differ outside the loss: the old log-probability of a shared rollout is its source's (naive_source), or the
learner's own at the start of the step (naive_learner). Pure tensor functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workers.algorithms.base import tensors
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import MicroBatch
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


def loss(
    logps: Tensor,
    completion_mask: Tensor,
    old_mean_logp: Tensor,
    advantages: Tensor,
    is_self: Tensor,
    config: Any,
    *,
    ref_logps: Tensor | None = None,
    source_lengths: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """GSPO's loss over own and shared rollouts alike; the KL penalty is on own ones, or on all with cross_kl.

    Shapes, denominator and stats as in hacpo.loss.
    """
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    mask, logps, advantages = completion_mask.to(dtype), logps.to(dtype), advantages.to(dtype)
    old_mean_logp = old_mean_logp.to(dtype)
    log_ratio, saturated = tensors.log_ratio(logps, mask, old_mean_logp, is_self, source_lengths, config)
    low, high = 1 - config.epsilon, 1 + config.epsilon_high
    objective, clipped, side, flows = tensors.clipped_objective(log_ratio, advantages, low, high)  # (b,) each
    penalised = is_self | getattr(config, "cross_kl", False)  # (b,)
    total, kl = tensors.loss_and_kl(objective, logps, mask, penalised, config.beta, ref_logps, denominator)
    flows = flows & ~saturated & (advantages != 0)  # (b,)
    return total, tensors.row_stats(log_ratio, clipped, side, flows, objective, kl)


class NaiveSource(SharingSpec):
    """Naive sharing: no correction, the ratio against the source's log-probability."""

    label: ClassVar[str] = "Naive sharing"
    summary: ClassVar[str] = "shared without HACPO's corrections, ratio against the source"

    name: Literal["naive_source"] = "naive_source"

    def shared_loss(self, batch: MicroBatch, update_index: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        return loss(
            *(batch.logps, batch.mask, batch.old_mean_logp, batch.advantages, batch.is_self, self),
            ref_logps=batch.ref_logps,
            source_lengths=batch.source_lengths,
            denominator=denominator,
        )

    def shared_band(self, update_index: int) -> tuple[float, float] | None:
        return self.own_band() if self.sharing else None

    @property
    def shared_help(self) -> str:
        return (
            "The band is that of own rollouts: a rollout outside it is lost where the update would move it further out."
        )


class NaiveLearner(NaiveSource):
    """Naive sharing, where the old log-probability of a shared rollout is the learner's own."""

    summary: ClassVar[str] = "shared without HACPO's corrections, ratio against the learner's own start of the step"

    name: Literal["naive_learner"] = "naive_learner"  # type: ignore[assignment]

    @property
    def rescores_shared(self) -> bool:
        return self.sharing
