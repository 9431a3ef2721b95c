"""The quota and the retention of a project, which staff set: one row of a table each.

Page, API and command show the fields of these two classes; quotas.py and removal.py act by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from django.db.models import Model
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hacrl_web.accounts.models import Project, User
from hacrl_web.accounts.roles.projects import forbidden
from hacrl_web.runs.models import Quota, Retention
from hacrl_web.web.errors import FieldErrors, plain_errors

Count = Annotated[int, Field(ge=0, le=100_000)] | None
Amount = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] | None
Days = Annotated[int, Field(ge=1, le=3650)] | None


class ProjectSettings(BaseModel):
    """The values of one project; None, as in a project without a row: no limit."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True, extra="forbid")

    table: ClassVar[type[Model]]
    noun: ClassVar[str]

    @classmethod
    def of(cls, project: Project) -> Self:
        row = cls.table._default_manager.filter(project=project).first()
        return cls() if row is None else cls(**{name: getattr(row, name) for name in cls.model_fields})

    @classmethod
    def checked(cls, user: User, values: Mapping[str, Any]) -> Self:
        """An empty text is None. Error: FieldErrors (403 for a user who is not staff; 422)."""
        if not user.is_staff:
            raise forbidden(f"Only staff set {cls.noun}: ask the staff of this installation.")
        try:
            return cls.model_validate({name: None if text == "" else text for name, text in values.items()})
        except ValidationError as error:
            raise FieldErrors(plain_errors(error)) from None

    @classmethod
    def replace(cls, user: User, project: Project, values: Mapping[str, Any]) -> None:
        """Set all values of the project. Error: FieldErrors, as of `checked`."""
        defaults = cls.checked(user, values).model_dump()
        cls.table._default_manager.update_or_create(project=project, defaults=defaults)


class QuotaLimits(ProjectSettings):
    """null, or left out: no limit.  waiting: runs that are queued or paused.  gpu_hours: in a calendar month, UTC."""

    table, noun = Quota, "the quota"

    running: Count = Field(None, title="Runs at once")
    waiting: Count = Field(None, title="Waiting runs (queued or paused)")
    gpu_hours: Amount = Field(None, title="GPU hours this month (UTC)")
    disk_gib: Amount = Field(None, title="Disk of its runs, GiB")


class RetentionDays(ProjectSettings):
    """Days, 1 to 3650; null, or left out: never."""

    table, noun = Retention, "the retention"

    checkpoint_days: Days = Field(None, title="Checkpoints: days after the end of their run")
    archived_days: Days = Field(None, title="Archived runs: days after they were archived")
