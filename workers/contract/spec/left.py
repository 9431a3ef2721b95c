"""Settings that this version no longer has, because their measurements showed no gain (docs/science.md, docs/LOG.md).

A stored one is dropped where it had no effect. Elsewhere it is refused, in one sentence with the way out, so that no
run trains by another rule than it says; pages still show what such a run recorded (hacrl_web/runs/stored_spec.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from workers.algorithms.registry import algorithms

LEFT_CODE = "left"
# By section: settings, each with the value at which it had no effect; None if it had none without the setting above it.
_SETTINGS: dict[str, dict[str, Any]] = {
    "algorithm": {
        "anchor": "source",
        "anchor_clip": None,
        "omega_scope": "run",
        "omega_shrinkage": None,
        "replay_steps": 0,
    },
    "training": {"curriculum_rest": 0},
}
_REASON = "left this version, because it showed no gain"
_LEAVE_OUT = "leave it out to train without it."
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


class LeftSetting(NamedTuple):
    """A stored setting that would act and is no longer there. message: what became of it, and the way out."""

    section: str
    name: str
    value: Any
    message: str


def without_idle(values: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a run's settings without those that left and had no effect."""
    result = dict(values)
    for section, names in _SETTINGS.items():
        if isinstance(own := values.get(section), Mapping):
            result[section] = {name: value for name, value in own.items() if not _is_idle(own, names, name)}
    return result


def left_settings(values: Mapping[str, Any]) -> list[LeftSetting]:
    """Those of a run's settings that left and would act."""
    sections = {section: own for section, own in without_idle(values).items() if isinstance(own, Mapping)}
    result = [
        LeftSetting(section, name, own[name], f"{name} {own[name]} {_REASON}: {_LEAVE_OUT}")
        for section, names in _SETTINGS.items()
        for own in (sections.get(section, {}),)
        for name in names
        if name in own and not _is_known(own, name)
    ]
    for (section, name), (gone, way_out) in _VALUES.items():
        value = sections.get(section, {}).get(name)
        if value in gone and value not in algorithms():
            result.append(LeftSetting(section, name, value, f"{name} {value} {_REASON}: {way_out}"))
    return result


def without_left(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that remain of a run's."""
    result = without_idle(values)
    for one in left_settings(values):
        result[one.section] = {name: value for name, value in result[one.section].items() if name != one.name}
    return result


def refuse_left(values: Mapping[str, Any]) -> None:
    """Error: ValidationError, with each setting that left and would act."""
    if left := left_settings(values):
        details = [
            InitErrorDetails(
                type=PydanticCustomError(LEFT_CODE, "{message}", {"message": one.message}),
                loc=(one.section, one.name),
                input=one.value,
            )
            for one in left
        ]
        raise ValidationError.from_exception_data("RunSpec", details)


def _is_idle(section: Mapping[str, Any], names: Mapping[str, Any], name: str) -> bool:
    """Whether a setting is one that left, with no effect."""
    return name in names and not _is_known(section, name) and names[name] in (None, section[name])


def _is_known(section: Mapping[str, Any], name: str) -> bool:
    """Whether the algorithm of a section, or any where it names none, has a setting of this name: of an own file."""
    every = algorithms()
    classes = [every[section["name"]]] if section.get("name") in every else every.values()
    return any(name in cls.model_fields for cls in classes)
