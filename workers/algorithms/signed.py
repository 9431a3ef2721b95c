"""Signed sharing: correct answers of peers teach at any ratio, incorrect ones only where the learner likes them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from workers.algorithms.base.gated import GatedSpec
from workers.algorithms.base.gates import GATES
from workers.contract.settings import Share, Slider, setting


class Signed(GatedSpec):
    """Shared rollouts pass by the sign of their advantage. No omega, and the plain mean of all rewards as baseline.

    Encouraging ones (A > 0) weigh s, at least `floor` and at most 1. Discouraging ones (A < 0) weigh 1 where the
    learner gives them at least as readily as their source (s >= 1), and nothing where it hardly gives them.
    """

    label: ClassVar[str] = "Signed sharing"
    summary: ClassVar[str] = "correct answers teach at any ratio, incorrect ones where the learner gives them too"

    name: Literal["signed"] = "signed"
    floor: Share = setting(
        0.2,
        help="An encouraging answer of a peer weighs at least this, however unlikely it is for the learner.",
        source="ours",
        slider=Slider(0, 1, 0.01),
    )

    def gate(self, s: Any, sign: Any, update_index: int, ops: Any) -> Any:
        return GATES["signed"].value(s, sign, 1 - self.floor, ops)

    @property
    def gate_help(self) -> str:
        return f"A > 0: s clipped to [{self.floor:g}, 1]; A < 0: 1 where s >= 1, else 0"
