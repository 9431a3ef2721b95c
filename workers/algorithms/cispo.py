"""CISPO, arXiv 2506.13585: the gradient of every token, weighted by its ratio up to a cap."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from workers.algorithms.dapo import Dapo
from workers.algorithms.grpo import TokenTerms
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class Cispo(Dapo):
    """sg(min(r, epsilon_high)) A log p of each token, a mean over all tokens: no token loses its gradient."""

    label: ClassVar[str] = "CISPO"
    unused: ClassVar[tuple[str, ...]] = ("epsilon",)
    summary: ClassVar[str] = "each agent alone, every token weighted by its ratio up to epsilon_high"
    own_epsilons: ClassVar[tuple[float, float]] = (0.2, 5.0)

    name: Literal["cispo"] = "cispo"  # type: ignore[assignment]

    def token_terms(self, log_ratio: Tensor, logps: Tensor, advantages: Tensor) -> TokenTerms:
        assert self.epsilon_high is not None
        ratio = log_ratio.detach().exp()  # (b, T)
        clipped = ratio.clamp(max=self.epsilon_high)  # (b, T)
        weight = clipped * advantages  # (b, T)
        return TokenTerms(
            weight * logps,
            clipped,
            (ratio > self.epsilon_high).int(),
            torch.ones_like(ratio, dtype=torch.bool),
            weight,
        )
