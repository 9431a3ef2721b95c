"""Dr. GRPO, arXiv 2503.20783: GRPO without the two divisions that favour short correct and long incorrect answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from workers.algorithms.base.tensors import MicroBatch
from workers.algorithms.grpo import Grpo
from workers.contract.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


class DrGrpo(Grpo):
    """GRPO with sums over tokens divided by the longest length allowed, and advantages not divided by the deviation."""

    label: ClassVar[str] = "Dr. GRPO"
    summary: ClassVar[str] = "each agent alone, without dividing by the length of an answer or the deviation of rewards"
    own_epsilons: ClassVar[tuple[float, float]] = (0.2, 0.2)

    name: Literal["dr_grpo"] = "dr_grpo"  # type: ignore[assignment]
    scale_rewards: Literal["group", "batch", "none"] = setting(
        "none",
        help="Divide advantages by the standard deviation of the prompt's rewards, of all rewards, or not at all.",
        source="arXiv 2503.20783",
    )

    def row_factors(self, batch: MicroBatch, denominator: float) -> Tensor | None:
        return batch.mask.sum(dim=1) / max(1, batch.max_tokens)
