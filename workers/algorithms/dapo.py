"""DAPO's loss, arXiv 2503.14476: GRPO with every token of the mini-batch at the same weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from workers.algorithms.base.tensors import MicroBatch
from workers.algorithms.grpo import Grpo

if TYPE_CHECKING:
    from torch import Tensor


class Dapo(Grpo):
    """GRPO whose loss is a mean over all tokens of a mini-batch, so that long answers weigh more than short ones."""

    label: ClassVar[str] = "DAPO"
    summary: ClassVar[str] = "each agent alone, a mean over all tokens of a mini-batch"

    name: Literal["dapo"] = "dapo"  # type: ignore[assignment]

    def row_factors(self, batch: MicroBatch, denominator: float) -> Tensor | None:
        return batch.mask.sum(dim=1) * (denominator / max(1, batch.num_tokens))
