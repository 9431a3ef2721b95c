"""Launching: a checked request becomes queued runs or a draft, and a draft becomes queued runs.

A run and a sweep are launched alike, by pages, API, demo and command line. A draft is checked as at launch, except for
cautions, which are confirmed when it is queued.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction

from hacrl_web.accounts.audit.audit_log import note_change
from hacrl_web.accounts.models import Role, User
from hacrl_web.accounts.roles.projects import require
from hacrl_web.runs.launch.again import request_of
from hacrl_web.runs.launch.create import columns_of, create_in, create_run, hold
from hacrl_web.runs.launch.fit.hub_access import require_hub_access
from hacrl_web.runs.launch.plan import LaunchError, LaunchPlan, plan_of
from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.messages.pubsub import publish_update
from hacrl_web.runs.models import Run, SearchState, State, StatusChange, Sweep
from hacrl_web.runs.models.quotas import check_launch
from hacrl_web.web.dotted_paths import flat
from hacrl_web.web.errors import FieldErrors

CHANGED = "Its agent group or a benchmark changed since it was saved: edit the draft and check it."
Row = TypeVar("Row", bound=Run | Sweep)


def launch(user: User, request: Mapping[str, Any]) -> Run:
    """Queue a run, or save it as a draft if the request says so. Error: LaunchError, and nothing is written."""
    plan = _launchable(user, request, Run)
    columns: dict[str, Any] = {"project": plan.rows.project, "cloned_from": origin_of(user, request)}
    columns["agent_changes"] = plan.rows.changes
    with transaction.atomic():
        hold(plan.rows)
        if not _is_draft(request):
            return create_run(user, plan.specs[0], *plan.rows.pair, **columns)
        reason = f"saved by {user.get_username()}"
        columns |= columns_of(plan.specs[0], *plan.rows.pair)
        run = Run.objects.create(owner=user, state=State.DRAFT, reason=reason, **columns)
        StatusChange.objects.create(run=run, to_state=State.DRAFT, attempt=0, reason=reason)
        return run


def launch_sweep(user: User, request: Mapping[str, Any]) -> Sweep:
    """Queue one run of each variant and seed, or save the sweep as a draft. Error: LaunchError; nothing is written."""
    plan = _launchable(user, request, Sweep)
    sweep = Sweep(owner=user, project=plan.rows.project)
    with transaction.atomic():
        hold(plan.rows)
        _write_sweep(user, sweep, plan, then_queue=not _is_draft(request))
    return sweep


def _launchable(user: User, request: Mapping[str, Any], kind: type[Run | Sweep]) -> LaunchPlan:
    plan = plan_of(user, request, kind)
    if not _is_draft(request):
        plan.require_teaching()
        require_hub_access(user, plan.rows.project, plan.specs[0])  # all its runs have the same agents
    return plan


def _is_draft(request: Mapping[str, Any]) -> bool:
    return request.get("draft") is True


def change_draft(user: User, row: Row, request: Mapping[str, Any], *, then_queue: bool = False) -> Row:
    """Replace a draft's settings by those of a launch request, and queue it if `then_queue`.

    Error: FieldErrors (403, 409; 422 as at launch), and nothing is written.
    """
    with _held_draft(user, row) as held:
        plan = plan_of(user, {**request, "draft": not then_queue}, type(row))
        if then_queue:
            plan.require_teaching()
        if plan.rows.project.pk != held.project_id:
            message = f"The draft is of project “{held.project}”: choose a group of that project."
            raise LaunchError.single("other_project", message, "group")
        hold(plan.rows)
        if isinstance(held, Sweep):
            _write_sweep(user, held, plan, then_queue=then_queue)
        else:
            _edit_run(held, plan, origin_of(user, request))
            if then_queue:
                _queue_run(user, held)
    return held


def queue_draft(user: User, row: Row, confirm: Sequence[str] = ()) -> Row:
    """Queue a draft as it was saved. Its settings are checked again: rows may have changed since.

    confirm: codes of cautions. Error: FieldErrors (403, 409; 422 as at launch), and it stays a draft.
    """
    with _held_draft(user, row) as held:
        settings = held.request if isinstance(held, Sweep) else request_of(user, held) | {"cloned_from": None}
        plan = plan_of(user, {**settings, "confirm": list(confirm)}, type(row))
        plan.require_teaching()
        hold(plan.rows)
        if not plan.is_of(held):
            raise LaunchError.single("changed_since", CHANGED)
        if isinstance(held, Sweep):
            _write_sweep(user, held, plan, then_queue=True)
        else:
            _queue_run(user, held)
    return held


@contextmanager
def _held_draft(user: User, row: Row) -> Iterator[Row]:
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


def _write_sweep(user: User, sweep: Sweep, plan: LaunchPlan, *, then_queue: bool) -> None:
    """Store a plan as a draft or with its runs. The dispatcher makes the runs of a search.

    Error: FieldErrors (403) for a viewer.
    """
    sweep.name, sweep.request, sweep.draft_digest = plan.request["name"], plan.request, ""
    if not then_queue:
        sweep.draft_digest = plan.digest
    elif plan.search is not None:
        sweep.search_state = SearchState.SEARCHING
    sweep.save()
    for run in plan.runs if then_queue and plan.search is None else ():
        create_in(user, sweep, run.label, run.spec, *plan.rows.pair, run.changes)


def _edit_run(draft: Run, plan: LaunchPlan, origin: Run | None) -> None:
    columns = columns_of(plan.specs[0], *plan.rows.pair) | {"agent_changes": plan.rows.changes}
    columns["cloned_from"] = draft.cloned_from if origin == draft else origin  # request_of(draft) names the draft
    before, now = (dict(flat(spec)) for spec in (draft.spec, columns["spec"]))
    changed_paths = sorted(path for path in {**before, **now} if before.get(path) != now.get(path))
    Run.objects.filter(pk=draft.pk).update(**columns)
    draft.refresh_from_db()
    if changed_paths:
        note_change("edited", draft, settings=", ".join(changed_paths))


def _queue_run(user: User, draft: Run) -> None:
    check_launch(draft.project)
    reason = f"queued by {user.get_username()}"
    draft.transition_to(State.QUEUED, reason=reason, queue_key=time.time())  # its place: as if launched now
    transaction.on_commit(lambda: worker_queue.notify_worker(draft.pk))
    transaction.on_commit(lambda: publish_update(draft.pk))


def origin_of(user: User, request: Mapping[str, Any]) -> Run | None:
    """The run that the request clones; None if it was deleted. Error: LaunchError."""
    value = request.get("cloned_from")
    if value in (None, ""):
        return None
    try:
        return Run.objects.visible_to(user).filter(pk=UUID(str(value))).first()
    except ValueError:
        raise LaunchError.single("invalid", "Must be the id of a run.", "cloned_from") from None
