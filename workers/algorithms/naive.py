"""Naive sharing, the paper's negative control: a joint plain mean, no omega, GSPO's clip on every rollout.

Two kinds differ outside the loss: the old log-probability of a shared rollout is its source's (naive_source), or the
learner's own at the start of the step (naive_learner). Pure tensor functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from workers.algorithms.base import tensors
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.tensors import MicroBatch

if TYPE_CHECKING:
    from torch import Tensor


class NaiveSource(SharingSpec):
    """Naive sharing: no correction, the ratio against the source's log-probability."""

    label: ClassVar[str] = "Naive sharing"
    summary: ClassVar[str] = "shared without HACPO's corrections, ratio against the source"

    name: Literal["naive_source"] = "naive_source"

    def shared_loss(self, batch: MicroBatch, update_index: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        """GSPO's loss over own and shared rollouts; the KL penalty is on own ones, or on all with cross_kl."""
        batch = batch.in_loss_precision()
        log_ratio, saturated = tensors.log_ratio(batch, self)
        objective, clipped, side, flows = tensors.clipped_objective(log_ratio, batch.advantages, *self.own_band())
        total, kl = tensors.loss_and_kl(objective, batch, batch.is_self | self.cross_kl, self.beta, denominator)
        flows = flows & ~saturated & (batch.advantages != 0)  # (b,)
        return total, tensors.row_stats(log_ratio, clipped, side, flows, objective, kl)

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
