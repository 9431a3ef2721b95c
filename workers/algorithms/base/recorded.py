"""Stand-ins for rules that left: what runs recorded under them is shown as it is; none is trained, or weighed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from workers.algorithms.base.contribution import ADVANTAGE_HELP, WeightedRow, WeightFactor
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.hacpo import Hacpo

if TYPE_CHECKING:
    _Base = AlgorithmSpec
else:
    _Base = object


class _AsRecorded(_Base):
    is_recorded_only: ClassVar[bool] = True

    def hypothetical_settings(self) -> list[str]:
        return []

    def shared_band(self, update_index: int) -> tuple[float, float] | None:
        return None

    @property
    def band_moves(self) -> bool:
        return False

    @property
    def drops_outside_band(self) -> bool:
        return False

    @property
    def shared_help(self) -> str:
        return "This version no longer has the rule of this run: its weights are shown as they were recorded."

    def explain(self, row: WeightedRow) -> Iterator[WeightFactor]:
        if row.is_own:
            yield from super().explain(row)
            return
        factor = row.weight / row.advantage if row.advantage else 0.0
        yield "rule", "weight / A", factor, "as recorded: this version no longer has the rule"
        yield "advantage", "A", row.advantage, ADVANTAGE_HELP

    def equation(self, row: WeightedRow) -> str:
        return super().equation(row) if row.is_own else ""


class RecordedHacpo(_AsRecorded, Hacpo):
    """HACPO with an option that left."""


class RecordedSharing(_AsRecorded, SharingSpec):
    """Another rule with shared rollouts, or one of its options, that left."""
