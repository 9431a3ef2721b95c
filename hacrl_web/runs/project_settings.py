"""What staff set of a project, one row of a table each: its quota and its retention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db.models import Model
from pydantic import BaseModel, ValidationError

from hacrl_web.accounts.models import Project
from hacrl_web.accounts.projects import forbidden
from hacrl_web.web.errors import FieldErrors, plain_errors

SettingsT = TypeVar("SettingsT", bound=BaseModel)


def stored_settings(table: type[Model], kind: type[SettingsT], project: Project) -> SettingsT:
    """The project's row, or the values of a project without one."""
    row = table._default_manager.filter(project=project).first()
    return kind() if row is None else kind(**{name: getattr(row, name) for name in kind.model_fields})


def checked_settings(user: Any, kind: type[SettingsT], values: Mapping[str, Any], noun: str) -> SettingsT:
    """An empty text is None. Error: FieldErrors (403 for a user who is not staff; 422)."""
    if not user.is_staff:
        raise forbidden(f"Only staff set {noun}: ask the staff of this installation.")
    try:
        return kind.model_validate({name: None if text == "" else text for name, text in values.items()})
    except ValidationError as error:
        raise FieldErrors(plain_errors(error)) from None


def replace_settings(table: type[Model], project: Project, settings: BaseModel) -> None:
    """All values of the project's row, which is made if there is none."""
    table._default_manager.update_or_create(project=project, defaults=settings.model_dump())
