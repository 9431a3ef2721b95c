"""RunSpec's algorithm section: a registered algorithm, chosen by `name`; and the upgrade of older settings.

A stored setting that left is dropped where it had no effect. Elsewhere it is refused, in one sentence with the way out,
so that no run trains by another rule than it says; pages still show what such a run recorded (runs/stored_spec.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union

from pydantic import Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.registry import algorithms, own_settings

SCHEMA_VERSION = 3
# Of settings that have another default since, or are new and would change a run.
DEFAULTS_OF_VERSION_2: dict[str, dict[str, Any]] = {
    "algorithm": {"beta": 1e-3},
    "rollout": {"engine": "transformers"},
    "training": {"lora_learning_rate_factor": 1.0},
    "evaluation": {"max_questions": 0, "question_choice": "first"},
    "checkpoint": {"save_steps": 0},
    "compute": {"agent_devices": "shared", "gradient_checkpointing": False, "placement": "local"},
}
DEFAULT = "hacpo"
BASELINE = "gspo"  # what others are compared with: each agent alone, at the same cost of rollouts
RECOMMENDED = "signed"  # the sharing rule that the study of docs/science.md supports
RECOMMENDED_PASSES = 4  # over the rollouts of a step
SECTION = "algorithm"

LEFT_CODE = "left"
# Settings that left, each with the value at which it had no effect; None if it had none without another that left.
_SETTINGS: dict[tuple[str, str], Any] = {
    ("algorithm", "anchor"): "source",
    ("algorithm", "anchor_clip"): None,
    ("algorithm", "omega_scope"): "run",
    ("algorithm", "omega_shrinkage"): None,
    ("algorithm", "replay_steps"): 0,
    ("training", "curriculum_rest"): 0,
    ("harness", "has_benchmarks"): False,
}
_REASON = "left this version, because it showed no gain"  # docs/science.md
_LEAVE_OUT = f"{_REASON}: leave it out to train without it."
_BY_OTHERS = "left this version: name tasks of the harness alone, or let our verifiers evaluate the benchmarks."
# Values of settings that are still there, and the way out.
_VALUES: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("algorithm", "cross_gate"): (
        ("balance", "truncated", "tapered"),
        "choose hacpo, signed or gamma, or write the gate as an algorithm of your own (docs/algorithms.md).",
    ),
    ("algorithm", "name"): (
        ("transfer",),
        "put docs/examples/success_transfer.py into a folder that HACRL_ALGORITHMS names, or choose another algorithm.",
    ),
}

if TYPE_CHECKING:
    AnyAlgorithm = AlgorithmSpec
else:
    AnyAlgorithm = Annotated[Union[tuple(algorithms().values())], Field(discriminator="name")]  # noqa: UP007


def upgraded(values: Any) -> Any:
    """The settings of a run as this version reads them; anything else as it is.

    Up to version 1 every algorithm had the settings of all of them: those that it does not have are left out.
    Up to version 2 some defaults were others: they are filled in. Settings that left are dropped where they had no
    effect.
    """
    if not isinstance(values, Mapping):
        return values
    section = values.get(SECTION, {})
    if isinstance(section, Mapping):
        section = {"name": DEFAULT, **section}
        if values.get("schema_version") == 1 and isinstance(section["name"], str):
            section = own_settings(section["name"], section)
    values = without_idle({**values, SECTION: section})
    if values.setdefault("schema_version", SCHEMA_VERSION) not in (1, 2):
        return values
    for name, defaults in DEFAULTS_OF_VERSION_2.items():
        if isinstance(own := values.get(name, {}), Mapping):
            values[name] = {**defaults, **own}
    return {**values, "schema_version": SCHEMA_VERSION}


def field_path(parts: tuple[int | str, ...]) -> str:
    """The dotted path of a setting from the place of pydantic's error, which also names the algorithm."""
    if len(parts) > 1 and parts[0] == SECTION and parts[1] in algorithms():
        parts = (SECTION, *parts[2:])
    return ".".join(map(str, parts))


class LeftSetting(NamedTuple):
    """A stored setting that left. message: what became of it, and the way out; empty where it had no effect."""

    section: str
    name: str
    value: Any
    message: str


def without_idle(values: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a run's settings without those that left and had no effect."""
    return _without(values, [one for one in _stored(values) if not one.message])


def left_settings(values: Mapping[str, Any]) -> list[LeftSetting]:
    """The settings of a run that this version no longer has and that would change its results."""
    result = [one for one in _stored(values) if one.message]
    for (section, name), (choices, way_out) in _VALUES.items():
        value = own.get(name) if isinstance(own := values.get(section), Mapping) else None
        if value in choices and value not in algorithms():
            result.append(LeftSetting(section, name, value, f"{name} {value} {_REASON}: {way_out}"))
    return result


def without_left(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that remain of a run's."""
    return _without(values, [*_stored(values), *left_settings(values)])


def _stored(values: Mapping[str, Any]) -> Iterator[LeftSetting]:
    """The settings that left, of those that are stored; algorithms of an own file may have settings of these names."""
    for (section, name), idle in _SETTINGS.items():
        own = values.get(section)
        if isinstance(own, Mapping) and name in own and not _is_known(own, name):
            way_out = _BY_OTHERS if section == "harness" else _LEAVE_OUT
            message = "" if idle in (None, own[name]) else f"{name} {own[name]} {way_out}"
            yield LeftSetting(section, name, own[name], message)


def _without(values: Mapping[str, Any], left: Iterable[LeftSetting]) -> dict[str, Any]:
    result = dict(values)
    for one in left:
        result[one.section] = {name: value for name, value in result[one.section].items() if name != one.name}
    return result


def refuse_left(values: Mapping[str, Any]) -> None:
    """Error: ValidationError, with each setting that left and would act."""
    if settings := left_settings(values):
        details = [
            InitErrorDetails(
                type=PydanticCustomError(LEFT_CODE, "{message}", {"message": one.message}),
                loc=(one.section, one.name),
                input=one.value,
            )
            for one in settings
        ]
        raise ValidationError.from_exception_data("RunSpec", details)


def _is_known(section: Mapping[str, Any], name: str) -> bool:
    """Whether the algorithm of a section, or any where it names none, has a setting of this name."""
    every = algorithms()
    classes = [every[section["name"]]] if section.get("name") in every else every.values()
    return any(name in cls.model_fields for cls in classes)
