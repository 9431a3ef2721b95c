"""A run's stored settings, read by the installed version: to train by them, or to show what was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors, plain_errors
from workers.algorithms.base.recorded import RecordedHacpo, RecordedSharing
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.hacpo import Hacpo
from workers.contract.spec.algorithm import LEFT_CODE, left_settings, without_left
from workers.contract.spec.run import RunSpec


def stored_spec(run: Run) -> RunSpec:
    """The settings to train with. Error: FieldErrors (409) if another version stored settings that this one refuses."""
    try:
        return RunSpec.model_validate(run.spec)
    except ValidationError as error:
        raise _unreadable(run, error) from None


def recorded_spec(run: Run) -> RunSpec:
    """The settings to show; a rule that left neither trains nor weighs rollouts again. Error: as stored_spec."""
    try:
        return readable_spec(run.spec)
    except ValidationError as error:
        raise _unreadable(run, error) from None


def readable_spec(values: Mapping[str, Any]) -> RunSpec:
    """The settings to show, of stored values. Error: ValidationError."""
    names = {one.name for one in left_settings(values)}
    if not names:
        return RunSpec.model_validate(values)
    values = without_left(values)
    section = values["algorithm"]
    if names <= {"replay_steps", "curriculum_rest", "has_benchmarks"}:  # which change no weight
        return RunSpec.model_validate(values)
    kind = RecordedHacpo if section.get("name") == "hacpo" else RecordedSharing
    own = {name: value for name, value in section.items() if name in kind.model_fields}
    rule = kind.model_validate(own | {"name": section.get("name", "transfer")})
    shared = {name: value for name, value in own.items() if name in SharingSpec.model_fields}
    spec = RunSpec.model_validate({**values, "algorithm": {**shared, "name": Hacpo.model_fields["name"].default}})
    return spec.model_copy(update={"algorithm": rule})


def _unreadable(run: Run, error: ValidationError) -> FieldErrors:
    first = plain_errors(error)[0]
    if first.code == LEFT_CODE:
        message = (
            f"{run.name} cannot be trained by this version: {(first.field or '').rpartition('.')[0]}.{first.message}"
        )
        return FieldErrors.single("unreadable_settings", message, status=409)
    message = (
        f"The settings of {run.name} were stored by another version, and this one cannot read {first.field}: "
        f"{first.message} Its Config, Events, System and Checkpoints tabs and its metrics as CSV are still there."
    )
    return FieldErrors.single("unreadable_settings", message, status=409)
