"""The base of a sharing rule that is one gate: the share of a shared rollout's gradient that passes.

Advantages, loss, weights and their explanation follow from `gate`. A rule of one's own overrides it, and names its
settings: docs/algorithms.md has an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import mul, truediv
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workers.algorithms.base import tensors
from workers.algorithms.base.contribution import (
    ADVANTAGE_HELP,
    NOTHING_TO_TEACH,
    RowWeights,
    Step,
    WeightedRow,
    single,
    singles,
    where_free,
)
from workers.algorithms.base.gates import PlainOps
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import MicroBatch
from workers.lazy_torch import torch
from workers.settings import If, Number, setting

if TYPE_CHECKING:
    from torch import Tensor


class GatedSpec(SharingSpec):
    """Plain sharing through a gate: the joint mean as the baseline, no omega, GSPO's term on own rollouts."""

    advantage_help: ClassVar[str] = ADVANTAGE_HELP  # of a shared rollout

    cross_weight: Number = setting(
        1.0, help="Factor on every cross rollout; 1/(n-1) keeps many peers in check.", source="design", ge=0, le=10
    )
    anchor: Literal["source", "own"] = setting(
        "source",
        help="own: the gate weighs a shared rollout by its ratio at the start of the step, and a clip around the "
        "learner's own start bounds the step; source: by its present ratio.",
        source="decoupled PPO, arXiv 2110.00641; AReaL, arXiv 2505.24298",
    )
    anchor_clip: Number = setting(
        0.2,
        help="With anchor own: a shared rollout stops teaching once the learner's probability of it has moved by more "
        "than this share in the direction of the update.",
        source="PPO, arXiv 1707.06347",
        needs=[If("anchor", "own")],
        gt=0,
        lt=1,
    )

    @property
    def measures_start(self) -> bool:
        return self.sharing and self.uses("anchor") and self.anchor == "own"

    def gate(self, s: Any, sign: Any, num_updates: int, ops: Any) -> Any:
        """g: the share of a shared rollout's gradient that passes. A pure function, of numbers or of tensors.

        s: the sequence ratio.  sign: of A (-1, 0, 1).  num_updates: m.  ops: torch, or gates.PlainOps for numbers:
        `where`, `clip` and `exp` are in both.
        """
        raise NotImplementedError

    @property
    def gate_help(self) -> str:
        """The gate's formula, in words."""
        return "the rule's gate g(s, sign A)"

    @property
    def shared_help(self) -> str:
        text = f"The lines are the gate: {self.gate_help}."
        if not self.measures_start:
            return text
        return (
            f"{text} It weighs a rollout by its ratio at the start of the step; the rollout stops teaching once the "
            f"learner has moved it by {self.anchor_clip:.0%} in the direction of the update."
        )

    def shared_loss(self, batch: MicroBatch, num_updates: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        """GSPO's term on own rollouts, g * omega * A * cross_weight * log s on shared ones (g without a gradient).

        With anchor own: g(s0) * omega * cross_weight * min(r A, clip(r) A), r = s / s0, s0 at the start of the step.
        """
        start = self._start_ratio(batch)  # (b,)

        def cross_term(log_ratio: Tensor, advantages: Tensor, omega: Tensor) -> tensors.CrossTerm:
            s = log_ratio.detach().exp() if start is None else start  # (b,)
            gate = torch.as_tensor(self.gate(s, advantages.sign(), num_updates, torch))
            gate = gate.to(log_ratio).expand_as(log_ratio)  # (b,)  a constant is a gate too
            factor = omega * advantages * self.cross_weight  # (b,)
            if start is None:
                return tensors.gated_term(gate, log_ratio, factor)
            return tensors.anchored_term(gate, log_ratio, start, factor, self.anchor_clip)

        total, stats = tensors.own_and_cross_loss(
            *(batch.logps, batch.mask, batch.old_mean_logp, batch.advantages, batch.is_self, batch.omega),
            self,
            cross_term,
            ref_logps=batch.ref_logps,
            source_lengths=batch.source_lengths,
            denominator=denominator,
        )
        return total, stats if start is None else stats | {"start_ratio": start}

    def _start_ratio(self, batch: MicroBatch) -> Tensor | None:
        """s at the start of the step, (b,), where the rule measures it."""
        if not self.measures_start or batch.start_mean_logp is None:
            return None
        mask = batch.mask.to(batch.logps.dtype)
        start = batch.start_mean_logp.to(mask)[:, None] * mask  # (b, T)
        place = (batch.old_mean_logp.to(mask), batch.is_self, batch.source_lengths)
        return tensors.log_ratio(start, mask, *place, self)[0].exp()

    # The same without torch

    def weigh(
        self,
        is_own: bool,
        num_updates: int,
        ratios: Sequence[float],
        advantages: Sequence[float],
        omega: float = 1.0,
        starts: Sequence[float] | None = None,
    ) -> RowWeights:
        if is_own or not self.sharing:
            return super().weigh(is_own, num_updates, ratios, advantages, omega)
        starts = starts if self.measures_start else None
        gate_ratios = ratios if starts is None else starts
        gates = singles(
            self.gate(s, (a > 0) - (a < 0), num_updates, PlainOps) for s, a in zip(gate_ratios, advantages, strict=True)
        )
        factors = singles(
            map(mul, singles(map(mul, repeat(single(omega)), advantages)), repeat(single(self.cross_weight)))
        )
        sides = [0 if gate else (s > 1) - (s < 1) for gate, s in zip(gates, gate_ratios, strict=True)]
        weights = singles(map(mul, gates, factors))
        if starts is None:
            return RowWeights(sides, where_free(weights, repeat(True, len(weights)), ratios, self.max_log_ratio))
        moves = singles(map(truediv, ratios, starts))
        low, high = map(single, (1 - self.anchor_clip, 1 + self.anchor_clip))
        of_move = [(r > high) - (r < low) for r in moves]
        flows = [side * a <= 0 for side, a in zip(of_move, advantages, strict=True)]
        sides = [other if gate else side for gate, side, other in zip(gates, sides, of_move, strict=True)]
        weights = singles(map(mul, weights, moves))
        return RowWeights(sides, where_free(weights, flows, ratios, self.max_log_ratio))

    def explain(self, row: WeightedRow) -> Iterator[Step]:
        if row.is_own or not self.sharing:
            yield from super().explain(row)
            return
        s, sign = row.sequence_ratio or 0.0, (row.advantage > 0) - (row.advantage < 0)
        start = row.start_ratio if self.measures_start else None
        gate_ratio = s if start is None else start
        gate = float(self.gate(gate_ratio, sign, row.mini_batch or 0, PlainOps))
        yield "sequence ratio", "s", s, "the learner's probability of the text over the source's, per token; Eq. (11)"
        obstacle = "" if gate else "the gate is 0: no gradient"
        if start is None:
            yield "gate", "g / s", gate / s if s else 0.0, self.gate_help
        else:
            why = f"{self.gate_help}; at {start:.4g}, the ratio s0 at the start of the step"
            yield "gate", "g(s0) / s0", gate / start if start else 0.0, why
            obstacle = obstacle or f"s / s0 has left 1 ± {self.anchor_clip:g}: no gradient"
        yield from self._last_steps(row, obstacle)

    @property
    def omega_reason(self) -> str:
        """Which ratio the factor omega of a shared rollout is."""
        return "of the source to the learner; Eq. (8)"

    def _last_steps(self, row: WeightedRow, obstacle: str) -> Iterator[Step]:
        """The steps from the passing share of s to the weight. obstacle: why the rule lets nothing pass, if so."""
        if self.modulates_gradient or row.omega != 1:
            yield "capability ratio", "ω", row.omega, self.omega_reason
        yield "advantage", "A", row.advantage, self.advantage_help
        yield "cross weight", "cross_weight", self.cross_weight, "the same for all shared rollouts"
        weight = self._weight_of(row)
        if row.advantage == 0:
            reason = NOTHING_TO_TEACH
        elif weight:
            reason = "the gradient flows"
        else:
            reason = obstacle or "the log ratio was clamped to max_log_ratio: no gradient"
        yield "gradient", "1[flows]", float(weight != 0), reason

    def equation(self, row: WeightedRow) -> str:
        if row.is_own or not self.sharing:
            return super().equation(row)
        if row.sequence_ratio is None:
            return ""
        if not row.weight:
            return "no gradient flows: the gate is 0, or A is 0" + (", or s left s0" if self.measures_start else "")
        gate = f"{row.clipped_ratio or 0:.3g}"
        if not self.measures_start or not row.start_ratio:
            return self._product("g", gate, row)
        return self._product("g(s0) · s / s0", f"{gate} · {row.sequence_ratio / row.start_ratio:.3g}", row)

    def _product(self, symbol: str, value: str, row: WeightedRow) -> str:
        """symbol * omega * A, with its numbers; omega where it acts, and the cross weight where it is not 1."""
        factors = [(symbol, value)]
        factors += [("ω", f"{row.omega:.3g}")] if self.modulates_gradient or row.omega != 1 else []
        factors += [("A", f"{row.advantage:.3g}")]
        factors += [("cross_weight", f"{self.cross_weight:.3g}")] if self.cross_weight != 1 else []
        return " = ".join(" · ".join(part) for part in zip(*factors, strict=True))
