"""How the pages explain HACPO's weights, in words and factors. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from workers.algorithms.base.contribution import WeightedRow, WeightFactor
from workers.algorithms.base.gates import GATES
from workers.algorithms.hacpo_settings import HacpoSettings


class HacpoWords(HacpoSettings):
    """The explanations of HACPO's own term, Eq. (12), and of the gates that replace it."""

    def _clips(self, is_own: bool) -> bool:
        """True for rows of HACPO's own term, Eq. (12): shared ones, unless another gate replaces it."""
        return not is_own and self.sharing and self.cross_gate == "hacpo"

    @property
    def gate_help(self) -> str:
        return f"{self.cross_gate}: {GATES[self.cross_gate].formula}"

    @property
    def shared_help(self) -> str:
        if self.cross_gate != "hacpo":
            return super().shared_help
        if not self.clip_cross:
            return "This run clips no shared rollouts (clip_cross is off)."
        text = "The steps underneath are the band [1 − δ + m·δ_step, 1], Eq. (14): it narrows with each update m."
        if self.cross_clip_gradient == "zero":
            return text
        return f"{text} With cross_clip_gradient {self.cross_clip_gradient}, rollouts outside the band can teach too."

    def explain(self, row: WeightedRow) -> Iterator[WeightFactor]:
        """Eqs. (10), (12), (14) and (50)."""
        if not self._clips(row.is_own):
            yield from super().explain(row)
            return
        s, m = row.sequence_ratio or 0.0, row.update_index or 0
        low, high = self.shared_band(m) or (0.0, inf)
        clipped = min(max(s, low), high)
        side = (s > high) - (s < low)
        where = "inside the band" if not side else "below the band" if side < 0 else "above the band"
        bounds = f"[{low:.4g}, {high:.4g}]: 1 - delta + m * delta_step with m = {m}" if self.clip_cross else "no clip"
        yield "sequence ratio", "s", s, "the learner's probability of the text over the source's, per token; Eq. (11)"
        yield "clip", "c / s", clipped / s if s else 0.0, f"{where} {bounds}"
        yield "exponent", "c^α", clipped**self.alpha, f"alpha = {self.alpha:g}; Eq. (12)"
        obstacle = f"{where}: no gradient (cross_clip_gradient {self.cross_clip_gradient})"
        yield from self._last_steps(row, obstacle if side else "")

    def equation(self, row: WeightedRow) -> str:
        if not self._clips(row.is_own):
            return super().equation(row)
        if row.sequence_ratio is None or row.clipped_ratio is None:
            return ""
        if not row.weight:
            return "no gradient flows: outside the band, or A is 0"
        return self._product("c^(1+α)", f"{row.clipped_ratio:.3g}^{1 + self.alpha:.3g}", row)
