"""A file of settings, YAML or JSON, read for the new-run form. RunSpec checks the values when the form is sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import isfinite
from typing import Any

from pydantic import ValidationError

from hacrl_web.registry.benchmarks.training_sets import TRAINING_SETS, is_deleted_entry
from hacrl_web.registry.language_models.agent_changes import KEY, text_of_changes
from hacrl_web.runs.launch.form import SECTIONS, TERMS
from hacrl_web.runs.launch.presets import with_preset
from hacrl_web.web.errors import FieldError, FieldErrors, plain_errors
from hacrl_web.web.settings_file import NoSettings, read_settings_file
from workers.algorithms.registry import settings_schema
from workers.contract.spec.algorithm import SCHEMA_VERSION, upgraded
from workers.contract.spec.rewards import RewardsSpec, text_of_terms
from workers.contract.spec.run import RunSpec

FURTHER = ("evaluation.benchmarks", TRAINING_SETS)
TOP = ("name", "seed", "group", "benchmark")
# Of a run's own file: the form has the group and the benchmark instead, and cautions are confirmed again.
LEFT_OUT = ("agents", "data", "confirm", "cloned_from", "draft")
UNKNOWN = "There is no setting of this name."
SWEEP = ("algorithms", "seeds", "ablations", "grid")


def read_settings(data: bytes) -> dict[str, Any]:
    """{dotted path: value} of a run's YAML or of a launch request. Error: FieldErrors."""
    try:
        file, _ = read_settings_file(data, "This file")
    except NoSettings as refused:
        raise FieldErrors.single("no_settings", str(refused)) from None
    if "schema_version" in file:
        file = upgraded(file)
    settings: dict[str, Any] = {}
    errors: list[FieldError] = []
    for key, value in with_preset(file, errors).items():
        if key in SWEEP:
            errors.append(FieldError("sweep", "This file launches a sweep: `./hacrl launch FILE` does that.", key))
        elif key in SECTIONS:
            settings |= _section(key, value, errors)
        elif key in TOP:
            settings[key] = value
        elif key == KEY and isinstance(value, dict) and all(isinstance(one, dict) for one in value.values()):
            settings[key] = text_of_changes(value)  # of a launch request; a run's own file has its agents in full
        elif key == "schema_version":
            if value not in range(1, SCHEMA_VERSION + 1):
                errors.append(FieldError("other_version", "Another version wrote this file.", key))
        elif key not in LEFT_OUT:
            errors.append(FieldError("unknown_key", UNKNOWN, key[:80]))
    if isinstance(terms := settings.get(TERMS), list):
        try:
            settings[TERMS] = text_of_terms(RewardsSpec.model_validate({"terms": terms}).model_dump()["terms"])
        except ValidationError as error:
            errors += [replace(one, field=TERMS) for one in plain_errors(error)]
    further = {path: _benchmarks(settings.pop(path), path, errors) for path in FURTHER if path in settings}
    message = "Must be a number, a text of one line, or true or false."
    fields = {path: value for path, value in settings.items() if path != KEY}
    errors += [FieldError("invalid", message, path) for path, value in fields.items() if not _fits_a_field(value)]
    if errors:
        raise FieldErrors(errors[:20])
    return settings | further


def _benchmarks(entries: Any, path: str, errors: list[FieldError]) -> list[dict[str, Any]]:
    """The benchmarks of a list, as {"benchmark": id or name, "weight": number}; the form shows those that exist."""
    if not isinstance(entries, list):
        errors.append(FieldError("invalid", "Must be a list.", path))
        return []
    benchmarks: dict[str, dict[str, Any]] = {}
    for place, entry in enumerate(entries):
        values = entry if isinstance(entry, dict) else {"benchmark": entry}
        key, weight = values.get("benchmark"), values.get("weight", 1)
        if is_deleted_entry(values):
            message = f"The benchmark “{values['name'][:120]}” was deleted: choose another, or remove the entry."
            errors.append(FieldError("benchmark_deleted", message, f"{path}.{place}"))
        elif not _is_id_or_name(key):
            message = "Must be a benchmark, by its name or id."
            if path == TRAINING_SETS:
                message = "Must be a benchmark, by its name or id, or an object with benchmark and weight."
            errors.append(FieldError("invalid", message, f"{path}.{place}"))
        elif not _is_number(weight):
            errors.append(FieldError("invalid", "Must be a number.", f"{path}.{place}.weight"))
        elif str(key) in benchmarks:
            errors.append(FieldError("repeated", f"“{key}” is listed twice: remove one.", path))
        else:
            benchmarks[str(key)] = {"benchmark": key, "weight": weight}
    return list(benchmarks.values())


def _is_id_or_name(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable() and 0 < len(value) <= 1000
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _is_number(value: Any) -> bool:
    """Also a text such as 1e-3, which is none in YAML."""
    if isinstance(value, bool):
        return False
    try:
        return isinstance(value, int | float | str) and isfinite(float(value))
    except (ValueError, OverflowError):
        return False


def _section(section: str, value: Any, errors: list[FieldError]) -> dict[str, Any]:
    """The settings of a section by dotted path."""
    if section == "algorithm" and isinstance(value, str):  # the short form of a launch request
        value = {"name": value}
    if not isinstance(value, dict):
        errors.append(FieldError("invalid", "Must be an object with settings.", section))
        return {}
    fields = {"name", *settings_schema()} if section == "algorithm" else _fields(section)
    errors += [FieldError("unknown_key", UNKNOWN, f"{section}.{name[:80]}") for name in value if name not in fields]
    return {f"{section}.{name}": setting for name, setting in value.items() if name in fields}


def _fields(section: str) -> Collection[str]:
    fields: Collection[str] = RunSpec.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
    return fields


def _fits_a_field(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(text, str) for text in value) and len(str(value)) <= 1000
    if isinstance(value, str):
        return value.isprintable() and len(value) <= 1000
    return abs(value) < 2**63 if isinstance(value, int) else value is None or isinstance(value, float)
