"""The base of a sharing rule that is one gate: the share of a shared rollout's gradient that passes.

Advantages, loss, weights and their explanation follow from `gate`. A rule of one's own overrides it, and names its
settings: docs/algorithms.md has an example.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from workers.algorithms.base import tensors
from workers.algorithms.base.contribution import ADVANTAGE_HELP, NOTHING_TO_TEACH, WeightedRow, WeightFactor
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.tensors import MicroBatch
from workers.contract.settings import Number, setting
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class GatedSpec(SharingSpec):
    """Plain sharing through a gate: the joint mean as the baseline, no omega, GSPO's term on own rollouts."""

    advantage_help: ClassVar[str] = ADVANTAGE_HELP  # of a shared rollout

    cross_weight: Number = setting(
        1.0, help="Factor on every cross rollout; 1/(n-1) keeps many peers in check.", source="design", ge=0, le=10
    )

    def gate(self, s: Any, sign: Any, update_index: int, ops: Any) -> Any:
        """g: the share of a shared rollout's gradient that passes. A pure function, of tensors or of numpy's arrays.

        s: the sequence ratio.  sign: of A (-1, 0, 1).  update_index: m.  ops: torch or numpy: `where`, `clip` and `exp`
        are in both.
        """
        raise NotImplementedError

    @property
    def gate_help(self) -> str:
        """The gate's formula, in words."""
        return "the rule's gate g(s, sign A)"

    @property
    def shared_help(self) -> str:
        return f"The lines are the gate: {self.gate_help}."

    def shared_loss(self, batch: MicroBatch, update_index: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        """GSPO's term on own rollouts, and on shared ones weight * log s, in value the weight."""
        return tensors.own_and_cross_loss(
            batch,
            self,
            lambda s, advantages, omega: self.shared_weights(s, advantages, omega, update_index, torch),
            denominator,
        )

    def shared_weights(self, s: Any, advantages: Any, omega: Any, update_index: int, ops: Any) -> tensors.WeightTerms:
        """g * omega * A * cross_weight; a row whose gate is 0 is lost on its side of 1."""
        gate = self.gate(s, ops.sign(advantages), update_index, ops)  # a constant is a gate too
        gate = (
            torch.as_tensor(gate).to(s).expand_as(s) if ops is torch else np.broadcast_to(gate, s.shape).astype(s.dtype)
        )
        flows = gate != 0
        side = ops.where(flows, 0, tensors.side_of_band(s, 1.0, 1.0))
        return tensors.WeightTerms(gate * (omega * advantages * self.cross_weight), gate, side, flows)

    # The same without torch

    def explain(self, row: WeightedRow) -> Iterator[WeightFactor]:
        if row.is_own or not self.sharing:
            yield from super().explain(row)
            return
        s, sign = row.sequence_ratio or 0.0, (row.advantage > 0) - (row.advantage < 0)
        gate = float(self.gate(np.float64(s), sign, row.update_index or 0, np))
        yield "sequence ratio", "s", s, "the learner's probability of the text over the source's, per token; Eq. (11)"
        yield "gate", "g / s", gate / s if s else 0.0, self.gate_help
        yield from self._last_steps(row, "" if gate else "the gate is 0: no gradient")

    def _last_steps(self, row: WeightedRow, obstacle: str) -> Iterator[WeightFactor]:
        """The steps from the passing share of s to the weight. obstacle: why the rule lets nothing pass, if so."""
        if self.modulates_gradient or row.omega != 1:
            yield "capability ratio", "ω", row.omega, "of the source to the learner; Eq. (8)"
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
            return "no gradient flows: the gate is 0, or A is 0"
        return self._product("g", f"{row.clipped_ratio or 0:.3g}", row)

    def _product(self, symbol: str, value: str, row: WeightedRow) -> str:
        """symbol * omega * A, with its numbers; omega where it acts, and the cross weight where it is not 1."""
        factors = [(symbol, value)]
        factors += [("ω", f"{row.omega:.3g}")] if self.modulates_gradient or row.omega != 1 else []
        factors += [("A", f"{row.advantage:.3g}")]
        factors += [("cross_weight", f"{self.cross_weight:.3g}")] if self.cross_weight != 1 else []
        return " = ".join(" · ".join(part) for part in zip(*factors, strict=True))
