"""A file of settings, YAML or JSON, read for the new-run form. RunSpec checks the values when the form is sent."""

from __future__ import annotations

from typing import Any

from hacrl_web.runs.launch.form import SECTIONS
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.settings_file import NoSettings, read_settings_file
from workers.contract.spec.run import RunSpec

FURTHER = "evaluation.benchmarks"
TOP = ("name", "seed", "group", "benchmark")
# Of a run's own file: the form has the group and the benchmark instead, and cautions are confirmed again.
LEFT_OUT = ("agents", "data", "confirm", "cloned_from", "draft")
SWEEP = ("algorithms", "seeds", "ablations", "grid")


def read_settings(data: bytes) -> dict[str, Any]:
    """{dotted path: value} of a run's YAML or of a launch request. Error: FieldErrors."""
    try:
        file, _ = read_settings_file(data, "This file")
    except NoSettings as refused:
        raise FieldErrors([FieldError("no_settings", str(refused), None)]) from None
    values: dict[str, Any] = {}
    errors: list[FieldError] = []
    for key, value in file.items():
        if key in SWEEP:
            errors.append(FieldError("sweep", "This file launches a sweep: `hacrl launch FILE` does that.", str(key)))
        elif key in SECTIONS:
            values |= _section(str(key), value, errors)
        elif key in TOP:
            values |= _scalar(str(key), value, errors)
        elif key == "schema_version":
            if value != RunSpec.model_fields[key].default:
                errors.append(FieldError("other_version", "Another version wrote this file.", key))
        elif key not in LEFT_OUT:
            errors.append(_unknown(str(key)[:80]))
    if errors:
        raise FieldErrors(errors[:20])
    return values


def _section(section: str, value: Any, errors: list[FieldError]) -> dict[str, Any]:
    if section == "algorithm" and isinstance(value, str):  # the short form of a launch request
        value = {"name": value}
    if not isinstance(value, dict):
        errors.append(FieldError("invalid", "Must be an object with settings.", section))
        return {}
    fields = RunSpec.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
    values: dict[str, Any] = {}
    for name, setting in value.items():
        path = f"{section}.{str(name)[:80]}"
        if name not in fields:
            errors.append(_unknown(path))
        elif path == FURTHER:
            values[path] = _benchmarks(setting)
        else:
            values |= _scalar(path, setting, errors)
    return values


def _benchmarks(value: Any) -> list[dict[str, str]]:
    """Further benchmarks by name; the form ticks those that exist."""
    entries = value if isinstance(value, list) else []
    names = [one.get("benchmark") for one in entries if isinstance(one, dict)]
    return [{"benchmark": name} for name in names if isinstance(name, str)]


def _scalar(path: str, value: Any, errors: list[FieldError]) -> dict[str, Any]:
    """What a field of the form can hold: no integer beyond 64 bits, no lone surrogate."""
    is_plain = value is None or isinstance(value, str | int | float)
    if isinstance(value, str):
        is_plain = "\x00" not in value and value.isprintable() and len(value) <= 1000
    if isinstance(value, int):
        is_plain = abs(value) < 2**63
    if is_plain:
        return {path: value}
    errors.append(FieldError("invalid", "Must be a number, a text of one line, or true or false.", path))
    return {}


def _unknown(path: str) -> FieldError:
    return FieldError("unknown_key", "There is no setting of this name.", path.encode("utf-8", "replace").decode())
