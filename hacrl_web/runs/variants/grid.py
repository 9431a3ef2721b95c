"""Variants of a sweep: algorithms, ablations of them, and points of a grid, each on the same seeds.

A grid multiplies only the variants that use its settings: GSPO has no delta, so it runs once and not once per delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

from pydantic import ValidationError

from hacrl_web.runs.variants.varied import (
    TERMS,
    VARIED,
    agents_of,
    is_of,
    is_varied,
    read_value,
    short_names,
    split_name,
    value_text,
    with_weights,
)
from hacrl_web.web.errors import FieldError
from workers.algorithms.base.spec import Ablation, AlgorithmSpec
from workers.algorithms.registry import algorithms, own_settings
from workers.contract.spec.run import SECTIONS

MAX_SWEEP_RUNS = 60
MAX_LABEL = 100  # characters; the name of a run is 20 longer, for the sweep's own and the seed
# Settings for whose values the form has fields: those that the paper tunes, and those that people tune most.
GRID = (
    *("alpha", "delta", "delta_step", "capability_window", "cross_weight", "beta"),
    *("training.learning_rate", "training.lora_rank", "rollout.temperature", "rollout.num_generations"),
)


@cache
def ablations() -> dict[str, tuple[str, Ablation]]:
    """The ablations by key: the algorithm, and the part that is removed."""
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
    point: Mapping[str, Any] = field(default_factory=dict)  # its place in the grid or the search: setting -> value
    trial: int | None = None  # its number in a search

    @property
    def overrides(self) -> dict[str, Any]:
        """The variant's changes of the section `algorithm`."""
        removed = ablations()[self.ablation][1].overrides if self.ablation else {}
        own = {name: value for name, value in self.point.items() if "." not in name}
        return {**removed, **own, "name": self.algorithm}

    def sections(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The other sections of a request, with the values of the grid. Those of agents are in `agent_changes`."""
        result = dict(shared)
        weights = {split_name(path)[1]: value for path, value in self.point.items() if path.startswith(TERMS)}
        for path, value in self.point.items():
            section, dot, name = path.partition(".")
            is_whole = section in SECTIONS and not path.startswith(TERMS)
            if dot and is_whole and isinstance(result.setdefault(section, {}), Mapping):
                result[section] = {**result[section], name: value}
        return {**result, "rewards": with_weights(result.get("rewards"), weights)} if weights else result

    def agent_changes(self, agents: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The variant's changes of the settings of these agents, by name."""
        changes: dict[str, dict[str, Any]] = {}
        for path, value in self.point.items():
            for agent in agents_of(path, agents):
                changes.setdefault(agent, {})[split_name(path)[2]] = value
        return changes

    @property
    def label(self) -> str:
        """The variant's name in its sweep: `hacpo`, `hacpo no_omega`, `hacpo alpha=3 delta=0.2`, `trial 7`."""
        if self.trial is not None:
            return f"trial {self.trial}"
        names = short_names(list(self.point))
        values = [f"{names[name]}={value_text(value)}" for name, value in self.point.items()]
        return " ".join([self.algorithm, *([self.ablation] if self.ablation else []), *values])

    def field_of(self, path: str | None, agents: Sequence[str]) -> str | None:
        """The field of the request that sets `path` in this variant. agents: the names of the group's."""
        own = (path or "").removeprefix("algorithm.")
        name = next((one for one in self.point if is_of(one, own, agents)), None)
        if name is not None:
            return f"grid.{name}" if self.trial is None else f"search.parameters.{name}"
        return {"algorithm.name": "algorithms", "seed": "seeds"}.get(path or "", path)


def grid_of(grid: Any, errors: list[FieldError]) -> dict[str, list[Any]]:
    """The grid {"alpha": [1, "3"], "training.learning_rate": [1e-6]} as values. Errors are added to `errors`."""
    if not isinstance(grid, Mapping):
        errors.append(FieldError("invalid", "Must be an object: each setting with a list of its values.", "grid"))
        return {}
    values_by_name = {}
    for name, values in grid.items():
        path = f"grid.{str(name)[:80]}"
        if not isinstance(name, str) or not is_varied(name):
            errors.append(FieldError("unknown_key", f"A grid varies {VARIED}", path))
        elif not isinstance(values, list | tuple) or not 0 < len(values) <= MAX_SWEEP_RUNS:
            errors.append(FieldError("invalid", f"Give a list of 1 to {MAX_SWEEP_RUNS} values.", path))
        elif any(isinstance(value, str) and ".." in value for value in values):
            message = "A range needs a search: choose random or optuna in place of grid, or give a list of values."
            errors.append(FieldError("invalid", message, path))
        else:
            read = [one for value in values for one in read_value(name, value, errors)]
            if len(set(read)) < len(read):
                errors.append(FieldError("repeated", "Each value may be named once.", path))
            values_by_name[name] = read
    # In a fixed order: it is that of the values in the names of runs.
    return {name: values_by_name[name] for name in sorted(values_by_name, key=_place)}


def _place(name: str) -> tuple[bool, int, str]:
    return ("." in name, GRID.index(name) if name in GRID else len(GRID), name)


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
    return [name for name in grid if "." in name or (name not in row.overrides and rule.uses(name))]


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
