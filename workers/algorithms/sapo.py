"""SAPO, arXiv 2511.20347: a smooth gate of each token's ratio in place of the clip."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from workers.algorithms.grpo import Grpo, TokenTerms
from workers.contract.settings import Number, setting
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class Sapo(Grpo):
    """(4 / t) sigmoid(t (r - 1)) A of each token: the gradient fades with the distance of r from 1."""

    label: ClassVar[str] = "SAPO"
    unused: ClassVar[tuple[str, ...]] = ("epsilon", "epsilon_high")
    summary: ClassVar[str] = "each agent alone, a smooth gate of each token's ratio in place of the clip"

    name: Literal["sapo"] = "sapo"  # type: ignore[assignment]
    sapo_temperature_pos: Number = setting(
        1.0,
        label="SAPO temperature, A > 0",
        help="t of tokens of encouraged answers (A > 0).",
        source="arXiv 2511.20347; TRL",
        gt=0,
        le=100,
    )
    sapo_temperature_neg: Number = setting(
        1.05,
        label="SAPO temperature, A < 0",
        help="t of tokens of other answers.",
        source="arXiv 2511.20347; TRL",
        gt=0,
        le=100,
    )

    def token_terms(self, log_ratio: Tensor, logps: Tensor, advantages: Tensor) -> TokenTerms:
        ratio = log_ratio.exp()  # (b, T)
        positive = torch.full_like(advantages, self.sapo_temperature_pos)  # (b, 1)
        temperature = torch.where(advantages > 0, positive, self.sapo_temperature_neg)  # (b, 1)
        gate = torch.sigmoid(temperature * (ratio - 1))  # (b, T)
        weight = 4 * (gate * (1 - gate) * ratio).detach() * advantages  # (b, T)  the objective's derivative by log r
        everywhere = torch.ones_like(ratio, dtype=torch.bool)
        return TokenTerms(
            gate * (4 / temperature) * advantages,
            ratio.detach(),
            torch.zeros_like(everywhere).int(),
            everywhere,
            weight,
        )
