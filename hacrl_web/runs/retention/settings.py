"""Retention of a project: after how many days the checkpoints of its runs, and its archived runs, are removed.

upkeep.py carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from hacrl_web.accounts.models import Project
from hacrl_web.runs.models import Retention
from hacrl_web.runs.project_settings import checked_settings, replace_settings, stored_settings

MAX_DAYS = 3650
Days = Annotated[int, Field(ge=1, le=MAX_DAYS)] | None


class RetentionDays(BaseModel):
    """checkpoint_days: after the end of a run.  archived_days: after a run was archived.  None: never."""

    model_config = ConfigDict(extra="forbid")

    checkpoint_days: Days = None
    archived_days: Days = None


DAY_NAMES = tuple(RetentionDays.model_fields)


def retention_of(project: Project) -> RetentionDays:
    return stored_settings(Retention, RetentionDays, project)


def checked_retention(user: Any, values: Mapping[str, Any]) -> RetentionDays:
    """An empty text is never. Error: FieldErrors (403 for a user who is not staff; 422)."""
    return checked_settings(user, RetentionDays, values, "the retention")


def set_retention(user: Any, project: Project, values: Mapping[str, Any]) -> RetentionDays:
    """Replace both values. Error: FieldErrors, as of `checked_retention`."""
    days = checked_retention(user, values)
    replace_settings(Retention, project, days)
    return days
