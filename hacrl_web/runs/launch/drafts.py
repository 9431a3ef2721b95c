"""Drafts: saved settings of runs that are not queued. `launch` creates them, this module changes and queues them.

A draft is checked as at launch, except for cautions, which are confirmed when it is queued.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import transaction

from hacrl_web.accounts.audit.audit_log import note_change
from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import require
from hacrl_web.runs.launch.launch import columns_of, hold, origin_of
from hacrl_web.runs.launch.plan import LaunchError, RequestRows, plan_run, request_of
from hacrl_web.runs.limits.quotas import check_launch
from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.messages.pubsub import publish_update
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.web.dotted_paths import flat
from hacrl_web.web.errors import FieldError, FieldErrors

CHANGED = "Its agent group or a benchmark changed since it was saved: edit the draft and check it."
Row = TypeVar("Row", Run, Sweep)


@contextmanager
def held_draft(user: Any, row: Row) -> Iterator[Row]:
    """A draft of a run or a sweep, locked until the end.

    Error: FieldErrors (403 for a viewer, 409 if it is no longer a draft).
    """
    require(user, row.project, Role.MEMBER)
    with transaction.atomic():
        rows = type(row)._default_manager.select_for_update(of=("self",)).select_related("project")
        held = rows.filter(pk=row.pk).first()
        if held is None or not held.is_draft:
            message = f"{row.name} is no longer a draft: it was {'queued' if held else 'deleted'}."
            raise FieldErrors.single("not_draft", message, status=409)
        yield held


def require_same_project(rows: RequestRows, draft: Run | Sweep) -> None:
    """Error: LaunchError where the request is of another project."""
    if rows.project.pk != draft.project_id:
        message = f"The draft is of project “{draft.project}”: choose a group of that project."
        raise LaunchError.single("other_project", message, "group")


def change_draft(user: Any, run: Run, request: Mapping[str, Any], *, then_queue: bool = False) -> Run:
    """Replace a draft's settings by those of a launch request, and queue it if `then_queue`.

    Error: FieldErrors (403, 409; 422 as at launch), and nothing is written.
    """
    settings = {key: value for key, value in request.items() if key != "draft"}
    with held_draft(user, run) as held:
        spec, rows = plan_run(user, settings if then_queue else settings | {"draft": True})
        require_same_project(rows, held)
        hold(rows)
        columns, origin = columns_of(spec, *rows.pair), origin_of(user, settings)
        columns["agent_changes"] = rows.changes
        columns["cloned_from"] = held.cloned_from if origin == held else origin  # request_of(draft) names the draft
        before, now = (dict(flat(spec)) for spec in (held.spec, columns["spec"]))
        changed_paths = sorted(path for path in {**before, **now} if before.get(path) != now.get(path))
        Run.objects.filter(pk=held.pk).update(**columns)
        held.refresh_from_db()
        if changed_paths:
            note_change("edited", held, settings=", ".join(changed_paths))
        if then_queue:
            _queue(user, held)
    return held


def queue_draft(user: Any, run: Run, confirm: Sequence[str] = ()) -> Run:
    """Queue a draft as the last run. Its settings are checked again: rows may have changed since it was saved.

    confirm: codes of cautions. Error: FieldErrors (403, 409; 422 as at launch), and it stays a draft.
    """
    with held_draft(user, run) as held:
        spec, rows = plan_run(user, request_of(user, held) | {"confirm": list(confirm), "cloned_from": None})
        hold(rows)
        if spec != stored_spec(held):
            raise LaunchError.single("changed_since", CHANGED)
        _queue(user, held)
    return held


def _queue(user: Any, held: Run) -> None:
    reason = f"queued by {user.get_username()}"
    check_launch(held.project)
    held.transition_to(State.QUEUED, reason=reason, queue_key=time.time())  # its place: as if launched now
    transaction.on_commit(lambda: worker_queue.notify_worker(held.pk))
    transaction.on_commit(lambda: publish_update(held.pk))


def open_cautions(draft: Run) -> list[FieldError]:
    """The cautions to confirm when it is queued; none if this version cannot read the settings."""
    try:
        cautions = stored_spec(draft).cautions()
    except FieldErrors:
        return []
    return [FieldError(caution.code, caution.message, caution.field) for caution in cautions]
