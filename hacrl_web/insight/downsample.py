"""A long line as few points that keep its shape: lowest, highest and last value of each bucket of steps.

Buckets are a power of two wide and begin at multiples of their width: the same steps always fall together, so two
loads draw the same picture, and a run that grows keeps the buckets it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_POINTS = 1500  # of a line in one answer


@dataclass
class Buckets:
    """One entry for each bucket with a value; `steps` are those of the last values."""

    steps: list[int] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """True where no bucket hides a value: lowest, highest and last are one."""
        return self.low == self.last == self.high


def width_for(first: int, last: int, points: int) -> int:
    """The narrowest width that makes at most `points` buckets of the steps from `first` to `last`."""
    width = 1
    while last // width - first // width + 1 > points:
        width *= 2
    return width


def bucketed(steps: Sequence[int], values: Sequence[float | None], width: int) -> Buckets:
    """The line in buckets. steps: ascending.  values: None is no point (not finite, or an average of nothing)."""
    if None in values:
        places = [place for place, value in enumerate(values) if value is not None]
        steps = [steps[place] for place in places]
        values = [values[place] for place in places]
    buckets = Buckets()
    start = 0
    while start < len(steps):
        end = bisect_left(steps, (steps[start] // width + 1) * width, start)
        part: list[float] = values[start:end]  # type: ignore[assignment] # without None
        buckets.steps.append(steps[end - 1])
        buckets.low.append(min(part))
        buckets.high.append(max(part))
        buckets.last.append(part[-1])
        start = end
    return buckets
