"""A run's stored settings, read by the installed version."""

from __future__ import annotations

from pydantic import ValidationError

from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors, plain_errors
from workers.contract.spec.run import RunSpec


def stored_spec(run: Run) -> RunSpec:
    """Error: FieldErrors (409), if another version stored settings that this one refuses."""
    try:
        return RunSpec.model_validate(run.spec)
    except ValidationError as error:
        first = plain_errors(error)[0]
        message = (
            f"The settings of {run.name} were stored by another version, and this one cannot read {first.field}: "
            f"{first.message} Its Config, Events, System and Checkpoints tabs and its metrics as CSV are still there."
        )
        raise FieldErrors.single("unreadable_settings", message, status=409) from None
