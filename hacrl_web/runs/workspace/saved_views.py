"""Saved views of the workspace: an address under a name, which everybody in the project can open."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.http import QueryDict

from hacrl_web.accounts.models import Role, User
from hacrl_web.accounts.roles.projects import project_of_new, require
from hacrl_web.runs.models import RunView
from hacrl_web.runs.workspace.query import WorkspaceQuery
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import clean_text

MAX_NAME = 80
MAX_QUERY = 16_000
MAX_VIEWS = 100  # of a project


def save_view(user: User, name: str, query: str) -> RunView:
    """Store an address under a name, in place of the view that had it.

    query: of the address; what the workspace does not read is left out. Errors: FieldErrors.
    """
    name = clean_text(name)
    if not name or len(name) > MAX_NAME:
        raise FieldErrors.single("invalid", f"A view needs a name of 1 to {MAX_NAME} characters.", "name")
    if len(query) > MAX_QUERY:
        raise FieldErrors.single("invalid", f"At most {MAX_QUERY:,} characters.", "query")
    project = project_of_new(user)
    require(user, project, Role.MEMBER)
    text = WorkspaceQuery.read(QueryDict(query.removeprefix("?").replace("\x00", ""))).encode()
    views = RunView.objects.filter(project=project)
    view = views.filter(name=name).first()
    if view is None and views.count() >= MAX_VIEWS:
        raise FieldErrors.single("invalid", f"A project has at most {MAX_VIEWS} views: delete one first.", "name")
    view = view or RunView(project=project, owner=user, name=name)
    view.query = text
    try:
        with transaction.atomic():
            view.save()
    except IntegrityError:  # saved by somebody else meanwhile
        raise FieldErrors.single("conflict", "A view of this name was just saved: try again.", "name", 409) from None
    return view


def delete_view(user: User, view: RunView) -> None:
    """Delete a view; any member may. Error: FieldErrors (403)."""
    require(user, view.project, Role.MEMBER)
    view.delete()
