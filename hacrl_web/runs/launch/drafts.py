"""Drafts: saved settings of runs that are not queued. `launch` creates them, this module changes and queues them.

A draft is checked as at launch, except for cautions, which are confirmed when it is queued.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from hacrl_web.accounts.audit_log import note_change
from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import require
from hacrl_web.registry.benchmarks.training_sets import deleted_benchmarks
from hacrl_web.runs import worker_queue
from hacrl_web.runs.launch.launch import columns_of, hold, origin_of
from hacrl_web.runs.launch.plan import LaunchError, plan_run, request_of
from hacrl_web.runs.limits.quotas import check_launch
from hacrl_web.runs.models import Run, State
from hacrl_web.runs.pubsub import publish_update
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.spec.run import RunSpec


@contextmanager
def _held(user: Any, run: Run) -> Iterator[Run]:
    """The draft, locked until the end. Error: FieldErrors (403 for a viewer, 409 if it is no longer a draft)."""
    require(user, run.project, Role.MEMBER)
    with transaction.atomic():
        held = Run.objects.select_for_update(of=("self",)).select_related("project").filter(pk=run.pk).first()
        if held is None or held.state != State.DRAFT:
            state = held.state if held else "deleted"
            raise FieldErrors.single("not_draft", f"{run.name} is no longer a draft ({state}).", status=409)
        yield held


def change_draft(user: Any, run: Run, request: Mapping[str, Any], *, then_queue: bool = False) -> Run:
    """Replace a draft's settings by those of a launch request, and queue it if `then_queue`.

    Error: FieldErrors (403, 409; 422 as at launch), and nothing is written.
    """
    settings = {key: value for key, value in request.items() if key != "draft"}
    with _held(user, run) as held:
        spec, rows = plan_run(user, settings if then_queue else settings | {"draft": True})
        if rows.project.pk != held.project_id:
            message = f"The draft is of project “{held.project}”: choose a group of that project."
            raise LaunchError.single("other_project", message, "group")
        hold(rows)
        columns, origin = columns_of(spec, *rows.pair), origin_of(user, settings)
        columns["agent_changes"] = rows.changes
        columns["cloned_from"] = held.cloned_from if origin == held else origin  # request_of(draft) names the draft
        changed_paths = _changed_paths(held.spec, columns["spec"])
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
    with _held(user, run) as held:
        if errors := _deleted_rows(held):
            raise LaunchError(errors)
        spec, rows = plan_run(user, request_of(user, held) | {"confirm": list(confirm), "cloned_from": None})
        hold(rows)
        if errors := _changed_rows(stored_spec(held), spec):
            raise LaunchError(errors)
        _queue(user, held)
    return held


def _queue(user: Any, held: Run) -> None:
    reason = f"queued by {user.get_username()}"
    check_launch(held.project)
    held.transition_to(State.QUEUED, reason=reason, queue_key=time.time())  # its place: as if launched now
    transaction.on_commit(lambda: worker_queue.notify_worker(held.pk))
    transaction.on_commit(lambda: publish_update(held.pk))


def _deleted_rows(draft: Run) -> list[FieldError]:
    parts = (("group", draft.group_id, "agent group"), ("benchmark", draft.benchmark_id, "benchmark"))
    errors = [
        FieldError(f"{field}_deleted", f"Its {name} was deleted: edit the draft and choose another.", field)
        for field, pk, name in parts
        if pk is None
    ]
    for field, kind, name in deleted_benchmarks(draft.spec):
        message = f"Its {kind} “{name}” was deleted: edit the draft and choose another."
        errors.append(FieldError("benchmark_deleted", message, field))
    return errors


def _changed_rows(before: RunSpec, now: RunSpec) -> list[FieldError]:
    """Errors for rows whose settings differ from the saved ones."""
    parts = (
        ("group", before.agents == now.agents, "agent group"),
        ("benchmark", before.data == now.data, "benchmark"),
        ("evaluation.benchmarks", before.evaluation == now.evaluation, "further benchmarks"),
        ("training.benchmarks", before.training.benchmarks == now.training.benchmarks, "further training sets"),
    )
    return [
        FieldError("changed_since", f"Its {name} changed since it was saved: edit the draft and check it.", field)
        for field, is_same, name in parts
        if not is_same
    ]


def open_cautions(draft: Run) -> list[FieldError]:
    """The cautions to confirm when it is queued; none if this version cannot read the settings."""
    try:
        cautions = stored_spec(draft).cautions()
    except FieldErrors:
        return []
    return [FieldError(caution.code, caution.message, caution.field) for caution in cautions]


def _changed_paths(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted paths of the settings that differ."""
    paths: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            paths += _changed_paths(before, after, f"{prefix}{key}.")
        elif before != after:
            paths.append(f"{prefix}{key}")
    return paths
