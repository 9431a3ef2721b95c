"""GRPO, each agent alone: one ratio for each token, mean over tokens and then over rows.

Its advantages are GSPO's: the two rules differ in the ratio only. The rules of dapo.py, dr_grpo.py, cispo.py and
sapo.py are GRPO with another term of a token, or another weight of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from workers.algorithms.base import tensors
from workers.algorithms.base.contribution import ADVANTAGE_HELP, WeightedRow, WeightFactor, importance_step
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.base.tensors import MicroBatch
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class TokenTerms(NamedTuple):
    """The terms of each token, (b, T): objective, clipped ratio, side, where the gradient flows, gradient by log r."""

    objective: Tensor
    clipped: Tensor
    side: Tensor
    flows: Tensor
    weight: Tensor


class Grpo(AlgorithmSpec):
    """GRPO: each agent alone, with a ratio for each token."""

    label: ClassVar[str] = "GRPO"
    summary: ClassVar[str] = "each agent alone, with a ratio for each token"
    own_epsilons: ClassVar[tuple[float, float]] = (0.2, 0.28)
    needs_token_logps: ClassVar[bool] = True

    name: Literal["grpo"] = "grpo"

    def loss(self, batch: MicroBatch, update_index: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        """-(1/rows) sum_i mean_t min(r_t A_i, clip(r_t) A_i) + beta * KL.

        Of the stats, sequence_ratio is exp(mean_t log r_t), clipped_ratio the same of clipped r_t, clip_side the side
        on which more tokens lie, gradient_flows any token's; and clipped_low, clipped_high: shares of tokens whose
        gradient the clip removed.
        """
        batch = batch.in_loss_precision()
        assert batch.old_logps is not None
        mask, logps, dtype = batch.mask, batch.logps, batch.logps.dtype
        length = mask.sum(dim=1).clamp(min=1)  # (b,)
        advantages = batch.advantages[:, None]  # (b, 1)
        raw = (logps - batch.old_logps) * mask  # (b, T)
        log_ratio = raw.clamp(-self.max_log_ratio, self.max_log_ratio)  # (b, T)
        objective, clipped, side, flows, weight = self.token_terms(log_ratio, logps, advantages)  # (b, T) each

        def over_tokens(values: Tensor) -> Tensor:
            return (values.to(dtype) * mask).sum(dim=1) / length  # (b,)

        every = torch.ones_like(length, dtype=torch.bool)  # (b,)
        factors = self.row_factors(batch, denominator)  # (b,)
        row_objective = over_tokens(objective)  # (b,)
        weighted = row_objective if factors is None else row_objective * factors  # (b,)
        total, kl = tensors.loss_and_kl(weighted, batch, every, self.beta, denominator, factors)
        with torch.no_grad():
            flows = flows & (raw.abs() <= self.max_log_ratio) & (advantages != 0) & (mask > 0)  # (b, T)
            stats = {
                "sequence_ratio": over_tokens(log_ratio).exp(),
                "clipped_ratio": over_tokens(clipped.log()).exp(),
                "clip_side": (side * mask).sum(dim=1).sign().int(),
                "gradient_flows": flows.any(dim=1),
                "weight": over_tokens(torch.where(flows, weight, 0.0)),
                "objective": row_objective,
                "kl": kl,
                "clipped_low": over_tokens((side < 0) & ~flows),
                "clipped_high": over_tokens((side > 0) & ~flows),
            }
        return total, {name: value.detach() for name, value in stats.items()}

    def token_terms(self, log_ratio: Tensor, logps: Tensor, advantages: Tensor) -> TokenTerms:
        """min(r A, clip(r) A). log_ratio, logps: (b, T).  advantages: (b, 1)."""
        objective, clipped, side, flows = tensors.clipped_objective(log_ratio, advantages, *self.own_band())
        return TokenTerms(objective, clipped, side, flows, objective)

    def row_factors(self, batch: MicroBatch, denominator: float) -> Tensor | None:
        """The factor of each row's mean over tokens, (b,); None for 1."""
        return None

    def explain(self, row: WeightedRow) -> Iterator[WeightFactor]:
        factor = row.weight / row.scaled_advantage if row.advantage else 0.0
        why = "mean over tokens of the ratio where the unclipped branch is taken; recorded as weight / A"
        yield "tokens", "mean r_t", factor, why
        yield "advantage", "A", row.advantage, ADVANTAGE_HELP
        yield from importance_step(row)

    def equation(self, row: WeightedRow) -> str:
        if not row.sequence_ratio:
            return ""
        scaled = "A" if row.importance == 1 else "A · w"
        return f"{scaled} · mean over tokens of r_t, where the unclipped branch is the minimum"
