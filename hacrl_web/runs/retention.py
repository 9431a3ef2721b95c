"""Retention of a project: after how many days the checkpoints of its runs, and its archived runs, are removed.

archive/retention_upkeep.py carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hacrl_web.accounts.models import Project
from hacrl_web.accounts.projects import forbidden
from hacrl_web.runs.models import Retention
from hacrl_web.web.errors import FieldErrors, plain_errors

MAX_DAYS = 3650
Days = Annotated[int, Field(ge=1, le=MAX_DAYS)] | None


class RetentionDays(BaseModel):
    """checkpoint_days: after the end of a run.  archived_days: after a run was archived.  None: never."""

    model_config = ConfigDict(extra="forbid")

    checkpoint_days: Days = None
    archived_days: Days = None


DAY_NAMES = tuple(RetentionDays.model_fields)


def retention_of(project: Project) -> RetentionDays:
    row = Retention.objects.filter(project=project).first()
    return RetentionDays() if row is None else RetentionDays(**{name: getattr(row, name) for name in DAY_NAMES})


def checked_retention(user: Any, values: Mapping[str, Any]) -> RetentionDays:
    """An empty text is never. Error: FieldErrors (403 for a user who is not staff; 422)."""
    if not user.is_staff:
        raise forbidden("Only staff set the retention: ask the staff of this installation.")
    try:
        return RetentionDays.model_validate({name: None if text == "" else text for name, text in values.items()})
    except ValidationError as error:
        raise FieldErrors(plain_errors(error)) from None


def set_retention(user: Any, project: Project, values: Mapping[str, Any]) -> RetentionDays:
    """Replace both values. Error: FieldErrors, as of `checked_retention`."""
    days = checked_retention(user, values)
    row = Retention.objects.filter(project=project).first() or Retention(project=project)
    for name, value in days.model_dump().items():
        setattr(row, name, value)
    row.save()
    return days
