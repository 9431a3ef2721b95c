"""Means over seeds with their 95 % confidence intervals, for boards and for the bands of charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

# Two-sided 95 % points of Student's t by degrees of freedom, from 1; beyond 30 the next smaller entry is used.
_T95: tuple[float, ...] = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
_T95 += (2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074)
_T95 += (2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
_T95_BEYOND = ((120, 1.980), (60, 2.000), (40, 2.021), (30, 2.042))
ROUNDING = 1e-9  # of the scale: floating point changes equal numbers by about 1e-16 of it, and scores differ by more


def t95(degrees: int) -> float:
    """The two-sided 95 % point of Student's t."""
    if degrees <= len(_T95):
        return _T95[degrees - 1]
    return next(value for least, value in _T95_BEYOND if degrees >= least)


@dataclass(frozen=True)
class MeanInterval:
    """A mean over seeds with its 95 % confidence interval: None for one seed, of width 0 for equal seeds."""

    mean: float
    half_width: float | None
    count: int

    @property
    def low(self) -> float | None:
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def are_seeds_equal(self) -> bool:
        """True for several seeds with one value, which does not depend on the seed."""
        return self.half_width == 0.0

    @property
    def is_clear(self) -> bool:
        """True if the interval excludes zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def mean_interval(values: Sequence[float], scale: float = 0.0) -> MeanInterval | None:
    """Mean and confidence interval of independent values; None without any.

    scale: size of the numbers of which the values are differences.
    """
    if not values:
        return None
    if len(values) == 1:
        return MeanInterval(values[0], None, 1)
    mean = fmean(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    rounding = ROUNDING * max(scale, *map(abs, values))
    if spread <= rounding:
        return MeanInterval(0.0 if abs(mean) <= rounding else mean, 0.0, len(values))
    return MeanInterval(mean, t95(len(values) - 1) * spread / math.sqrt(len(values)), len(values))
