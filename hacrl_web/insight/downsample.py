"""Long series as few points that keep their shape: the buckets of steps of every chart, picture and table.

A bucket is a power of two wide and begins at a multiple of its width: the same steps always fall together, so two loads
draw the same picture, and a run that grows keeps the buckets it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan

MAX_POINTS = 1500  # of a line in one answer


@dataclass
class Buckets:
    """Lowest, highest and last value of each bucket with a value; `steps` are those of the last values."""

    steps: list[int] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """True if no bucket hides a value: lowest, highest and last are one."""
        return self.low == self.last == self.high


def width_for(first: int, last: int, points: int) -> int:
    """The narrowest width that makes at most `points` buckets of the steps from `first` to `last`."""
    width = 1
    while last // width - first // width + 1 > points:
        width *= 2
    return width


def bucket_places(steps: Sequence[int], width: int) -> Iterator[range]:
    """The places in `steps`, which ascend, of each bucket that holds any."""
    start = 0
    while start < len(steps):
        end = bisect_left(steps, (steps[start] // width + 1) * width, start)
        yield range(start, end)
        start = end


def downsample(steps: Sequence[int], values: Sequence[float], width: int) -> Buckets:
    """A series in buckets. NaN is no point: not finite, or an average of nothing."""
    if any(map(isnan, values)):
        places = [place for place, value in enumerate(values) if not isnan(value)]
        steps, values = [steps[place] for place in places], [values[place] for place in places]
    buckets = Buckets()
    for bucket in bucket_places(steps, width):
        part = values[bucket.start : bucket.stop]
        buckets.steps.append(steps[bucket[-1]])
        buckets.low.append(min(part))
        buckets.high.append(max(part))
        buckets.last.append(part[-1])
    return buckets


def extreme_places(steps: Sequence[int], values: Sequence[float], points: int) -> list[int]:
    """At most `points` places: of each bucket the lowest, the highest and the last value, in order; all if few."""
    if len(steps) <= points:
        return list(range(len(steps)))
    value_at = values.__getitem__
    buckets = bucket_places(steps, width_for(steps[0], steps[-1], points // 3))
    return [
        place
        for bucket in buckets
        for place in sorted({min(bucket, key=value_at), max(bucket, key=value_at), bucket[-1]})
    ]
