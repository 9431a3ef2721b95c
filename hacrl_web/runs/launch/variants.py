"""Variants of a sweep: algorithms, ablations of them, and points of a grid, each on the same seeds.

A grid varies settings of algorithms by their name, and those of the sections `training` and `rollout` by their path. It
multiplies only the variants that use its settings: GSPO has no delta, so it runs once and not once per delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from hacrl_web.web.errors import FieldError, plain_errors
from workers.algorithms.base.spec import Ablation, AlgorithmSpec
from workers.algorithms.registry import algorithms, own_settings, settings_schema
from workers.contract.spec.run import RunSpec

MAX_SWEEP_RUNS = 60
MAX_LABEL = 100  # characters; the name of a run is 20 longer, for the sweep's own and the seed
# Settings for whose values the form has fields: those that the paper tunes, and those that people tune most.
GRID = (
    *("alpha", "delta", "delta_step", "capability_window", "cross_weight", "beta"),
    *("training.learning_rate", "training.lora_rank", "rollout.temperature", "rollout.num_generations"),
)
GRID_SECTIONS = ("training", "rollout")  # beside `algorithm`, whose settings have no section in their name
FINITE = ConfigDict(allow_inf_nan=False, str_strip_whitespace=True)  # as in RunSpec
SCALARS = ("number", "integer", "boolean")


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
    point: Mapping[str, Any] = field(default_factory=dict)  # its place in the grid or the search: setting -> value
    trial: int | None = None  # its number in a search

    @property
    def overrides(self) -> dict[str, Any]:
        """Its changes of the section `algorithm`."""
        removed = ablations()[self.ablation][1].overrides if self.ablation else {}
        own = {name: value for name, value in self.point.items() if "." not in name}
        return {**removed, **own, "name": self.algorithm}

    def sections(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The other sections of a request, with the values of the grid."""
        result = dict(shared)
        for path, value in self.point.items():
            section, dot, name = path.partition(".")
            if dot and isinstance(result.setdefault(section, {}), Mapping):
                result[section] = {**result[section], name: value}
        return result

    @property
    def label(self) -> str:
        """Its name within the sweep: `hacpo`, `hacpo no_omega`, `hacpo alpha=3 delta=0.2`, `trial 7`."""
        if self.trial is not None:
            return f"trial {self.trial}"
        values = [f"{name.rpartition('.')[2]}={value_text(value)}" for name, value in self.point.items()]
        return " ".join([self.algorithm, *([self.ablation] if self.ablation else []), *values])

    def field_of(self, path: str | None) -> str | None:
        """The field of the request that sets `path` in this variant."""
        name = (path or "").removeprefix("algorithm.")
        if name in self.point:  # the path of another section is its name
            return f"grid.{name}" if self.trial is None else f"search.parameters.{name}"
        return {"algorithm.name": "algorithms", "seed": "seeds"}.get(path or "", path)


def value_text(value: Any) -> str:
    """The shortest text that is exactly this value: 3, 0.1, 1.0000001, true, signed."""
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@cache
def _readers() -> dict[str, TypeAdapter[Any]]:
    """What reads a value of each setting that a grid can vary: numbers, switches and choices."""
    readers = {}
    for name, schema in settings_schema().items():
        cls = algorithms()[(schema["algorithms"] or list(algorithms()))[0]]
        if _is_scalar(schema) and name in cls.model_fields:
            readers[name] = _reader(cls.model_fields[name])
    for section in GRID_SECTIONS:
        model: Any = RunSpec.model_fields[section].annotation
        for name, schema in model.model_json_schema()["properties"].items():
            if _is_scalar(schema):
                readers[f"{section}.{name}"] = _reader(model.model_fields[name])
    return readers


def _reader(info: FieldInfo) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[info.annotation, info], config=FINITE)  # type: ignore[arg-type]


def _is_scalar(schema: Mapping[str, Any]) -> bool:
    options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    return all(one.get("type") in SCALARS or "enum" in one for one in options)


def grid_of(grid: Any, errors: list[FieldError]) -> dict[str, list[Any]]:
    """The grid {"alpha": [1, "3"], "training.learning_rate": [1e-6]} as values. Errors are added to `errors`."""
    if not isinstance(grid, Mapping):
        errors.append(FieldError("invalid", "Must be an object: each setting with a list of its values.", "grid"))
        return {}
    values_by_name = {}
    for name, values in grid.items():
        path = f"grid.{str(name)[:80]}"
        if name not in _readers():
            message = (
                "A grid varies numbers, switches and choices: settings of algorithms by their name, such as alpha, and "
                "those of training and rollout with their section, such as training.learning_rate."
            )
            errors.append(FieldError("unknown_key", message, path))
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


def is_varied(name: str) -> bool:
    """Whether a sweep can vary the setting of this name."""
    return name in _readers()


def read_value(name: str, value: Any, errors: list[FieldError]) -> list[Any]:
    """The value as the setting reads it, or nothing and an error."""
    if value is None:
        errors.append(
            FieldError("invalid", "Give values; without this setting all runs have its default.", f"grid.{name}")
        )
        return []
    try:
        return [_readers()[name].validate_python(value)]
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
