"""Variants of a sweep: algorithms, ablations of them, and points of a grid, each on the same seeds.

A variant is an algorithm with its changes of RunSpec's section `algorithm`. A grid multiplies only the variants that
use its settings: GSPO has no delta, so it runs once and not once per delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

from pydantic import ValidationError

from hacrl_web.web.errors import FieldError, plain_errors
from workers.algorithms.base.spec import Ablation, AlgorithmSpec
from workers.algorithms.registry import algorithms, own_settings, settings_schema

MAX_SWEEP_RUNS = 60
MAX_LABEL = 100  # characters; the name of a run is 20 longer, for the sweep's own and the seed
# Settings that a grid may vary: those that the paper tunes.
GRID = ("alpha", "delta", "delta_step", "capability_window")


@cache
def ablations() -> dict[str, tuple[str, Ablation]]:
    """By key: the algorithm, and the part that is removed."""
    by_key: dict[str, tuple[str, Ablation]] = {}
    for name, cls in algorithms().items():
        for one in cls.ablations:
            by_key.setdefault(one.key, (name, one))
    return by_key


@dataclass(frozen=True)
class Variant:
    """One row of a sweep."""

    algorithm: str
    ablation: str = ""
    point: Mapping[str, Any] = field(default_factory=dict)  # its place in the grid: setting -> value

    @property
    def overrides(self) -> dict[str, Any]:
        """Its changes of the section `algorithm`."""
        removed = ablations()[self.ablation][1].overrides if self.ablation else {}
        return {**removed, **self.point, "name": self.algorithm}

    @property
    def label(self) -> str:
        """Its name within the sweep: `hacpo`, `hacpo no_omega`, `hacpo alpha=3 delta=0.2`."""
        values = [f"{name}={_written(value)}" for name, value in self.point.items()]
        return " ".join([self.algorithm, *([self.ablation] if self.ablation else []), *values])

    def field_of(self, path: str | None) -> str | None:
        """The field of the request that sets `path` in this variant."""
        name = (path or "").removeprefix("algorithm.")
        if name in self.point:
            return f"grid.{name}"
        return {"algorithm.name": "algorithms", "seed": "seeds"}.get(path or "", path)


def _written(value: float) -> str:
    """The shortest text that is exactly this number: 3, 0.1, 1.0000001."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def grid_of(grid: Any, errors: list[FieldError]) -> dict[str, list[Any]]:
    """The grid {"alpha": [1, "3"]} as numbers. Errors are added to `errors`."""
    if not isinstance(grid, Mapping):
        errors.append(FieldError("invalid", "Must be an object: each setting with a list of its values.", "grid"))
        return {}
    values_by_name = {}
    for name, values in grid.items():
        path = f"grid.{str(name)[:80]}"
        if name not in GRID:
            errors.append(FieldError("unknown_key", f"A grid is over {', '.join(GRID)}.", path))
        elif not isinstance(values, list | tuple) or not 0 < len(values) <= MAX_SWEEP_RUNS:
            errors.append(FieldError("invalid", f"Give a list of 1 to {MAX_SWEEP_RUNS} values.", path))
        else:
            numbers = [number for value in values for number in _number(name, value, errors)]
            if len(set(numbers)) < len(numbers):
                errors.append(FieldError("repeated", "Each value may be named once.", path))
            values_by_name[name] = numbers
    # In a fixed order: it is that of the values in the names of runs.
    return {name: values_by_name[name] for name in GRID if name in values_by_name}


def _number(name: str, value: Any, errors: list[FieldError]) -> list[Any]:
    """The value as the setting reads it, or nothing and an error."""
    cls = algorithms()[settings_schema()[name]["algorithms"][0]]
    try:
        return [getattr(cls.model_validate({name: value}), name)]
    except ValidationError as error:
        errors += [replace(one, field=f"grid.{name}") for one in plain_errors(error)]
        return []


def expand(
    names: Sequence[Any], removed: Iterable[str], grid: Mapping[str, Sequence[Any]], base: Mapping[str, Any]
) -> list[Variant]:
    """The variants of a request, algorithms first.

    names: of algorithms.  removed: keys of ablations.  base: the section `algorithm` that all share.
    """
    rows = [Variant(str(name)) for name in names] + [Variant(ablations()[key][0], key) for key in removed]
    return [
        Variant(row.algorithm, row.ablation, dict(zip(axes, point, strict=True)))
        for row in rows
        for axes in [_axes(row, grid, base)]
        for point in product(*(grid[name] for name in axes))
    ]


def _axes(row: Variant, grid: Mapping[str, Sequence[Any]], base: Mapping[str, Any]) -> list[str]:
    """The settings of the grid that a row uses and its ablation does not remove."""
    rule = rule_or_none(row.algorithm, {**base, **row.overrides})
    if rule is None:  # check_spec adds the error
        return []
    return [name for name in grid if name not in row.overrides and rule.uses(name)]


def rule_or_none(name: str, section: Mapping[str, Any]) -> AlgorithmSpec | None:
    """An algorithm with those settings of a section that it has; None if one is refused."""
    try:
        return algorithms()[name].model_validate({**own_settings(name, section), "name": name})
    except (KeyError, ValidationError):
        return None


def idle_ablations(name: str, section: Mapping[str, Any]) -> list[str]:
    """The ablations of an algorithm that change nothing with these settings."""
    rule = rule_or_none(name, section)
    if rule is None:
        return []
    return [
        one.key
        for one in rule.ablations
        if not rule.shares_rollouts
        or all(getattr(rule, key) == value or not rule.uses(key) for key, value in one.overrides.items())
    ]
