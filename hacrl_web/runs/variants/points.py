"""Points of a search: one value for each of its parameters, drawn at random or suggested by Optuna.

A point depends on the search's seed, the trial's number and, for Optuna, on the stored trials alone: a process that
asks again after a crash gets the same point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from hacrl_web.runs.variants.parameters import Parameter
from hacrl_web.runs.variants.search_settings import SearchSettings

Point = Mapping[str, Any]
MAX_DRAWS = 50  # for a point that no earlier trial has


def random_point(settings: SearchSettings, number: int, draw: int = 0) -> dict[str, Any]:
    """A point drawn at random. draw: another number gives another point."""
    generator = Random(f"{settings.seed} {number} {draw}")  # noqa: S311 - repeatable draws, no secret
    return {name: _drawn(parameter, generator) for name, parameter in settings.parameters.items()}


def _drawn(parameter: Parameter, generator: Random) -> Any:
    if parameter.choices:
        return generator.choice(parameter.choices)
    assert parameter.low is not None
    assert parameter.high is not None
    # Whole numbers are rounded: half a step on each side gives the ends the same share as the others.
    margin = 0.5 if parameter.is_whole else 0.0
    low, high = parameter.low - margin, parameter.high + margin
    if parameter.is_log:
        return parameter.rounded(math.exp(generator.uniform(math.log(low), math.log(high))))
    return parameter.rounded(generator.uniform(low, high))


def new_point(earlier: Sequence[Point], suggest: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """The first suggestion that no earlier trial has; after MAX_DRAWS the last. suggest: of the number of a draw."""
    for draw in range(MAX_DRAWS):
        point = suggest(draw)
        if point not in earlier:
            return point
    return point


def random_points(settings: SearchSettings) -> list[dict[str, Any]]:
    """The points of all trials of a random search; of another one, points of the same size for estimates."""
    points: list[dict[str, Any]] = []
    for number in range(settings.trials):
        points.append(new_point(points, partial(random_point, settings, number)))
    return points
