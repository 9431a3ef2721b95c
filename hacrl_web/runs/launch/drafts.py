"""Drafts: runs that are kept with all their settings and wait for nobody, until somebody queues them.

A draft has been checked as at launch, but for the cautions, which are asked about when it is queued. Pages and the API
come here; `launch` makes a draft of a request that says so.
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
from hacrl_web.runs import worker_queue
from hacrl_web.runs.launch.launch import columns_of, origin_of
from hacrl_web.runs.launch.plan import LaunchError, plan_run, request_of
from hacrl_web.runs.models import Run, State
from hacrl_web.runs.pubsub import publish_update
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.spec.run import RunSpec


@contextmanager
def _held(user: Any, run: Run) -> Iterator[Run]:
    """The draft as it stands, held until the end: nobody else changes, queues or deletes it meanwhile.

    Errors: FieldErrors (403 for a viewer, 409 where it is a draft no longer).
    """
    require(user, run.project, Role.MEMBER)
    with transaction.atomic():
        held = Run.objects.select_for_update(of=("self",)).select_related("project").filter(pk=run.pk).first()
        if held is None or held.state != State.DRAFT:
            state = held.state if held else "deleted"
            message = f"{run.name} is no draft any more ({state})."
            raise FieldErrors([FieldError("not_draft", message, None)], 409)
        yield held


def change_draft(user: Any, run: Run, request: Mapping[str, Any], *, then_queue: bool = False) -> Run:
    """Other settings, those of a launch request, in place of a draft's; then_queue: and into the queue with it.

    Errors: FieldErrors (403, 409; 422 as at launch), and nothing is written.
    """
    settings = {key: value for key, value in request.items() if key != "draft"}
    with _held(user, run) as held:
        spec, material = plan_run(user, settings if then_queue else settings | {"draft": True})
        if material.project.pk != held.project_id:
            message = f"The draft is of project “{held.project}”: choose a group of that project."
            raise LaunchError([FieldError("other_project", message, "group")])
        origin = origin_of(user, settings)
        columns = columns_of(spec, material.group, material.benchmark)
        columns["cloned_from"] = held.cloned_from if origin == held else origin  # its own request names itself
        differing = _differing(held.spec, columns["spec"])
        Run.objects.filter(pk=held.pk).update(**columns)
        held.refresh_from_db()
        if differing:
            note_change("edited", held, settings=", ".join(differing))
        if then_queue:
            _queue(user, held)
    return held


def queue_draft(user: Any, run: Run, confirm: Sequence[str] = ()) -> Run:
    """Into the queue, behind all that wait; what may have changed since it was saved is checked again.

    confirm: codes of cautions. Errors: FieldErrors (403, 409; 422 as at launch), and it stays a draft.
    """
    with _held(user, run) as held:
        if gone := _gone(held):
            raise LaunchError(gone)
        spec, _ = plan_run(user, request_of(user, held) | {"confirm": list(confirm), "cloned_from": None})
        if changed := _changed(held, spec):
            raise LaunchError(changed)
        _queue(user, held)
    return held


def _queue(user: Any, held: Run) -> None:
    reason = f"queued by {user.get_username()}"
    held.transition_to(State.QUEUED, reason=reason, queue_key=time.time())  # its place is that of a run launched now
    transaction.on_commit(lambda: worker_queue.notify_worker(held.pk))
    transaction.on_commit(lambda: publish_update(held.pk))


def _gone(draft: Run) -> list[FieldError]:
    """What was deleted since."""
    parts = (("group", draft.group_id, "agent group"), ("benchmark", draft.benchmark_id, "benchmark"))
    return [
        FieldError(f"{field}_deleted", f"Its {name} was deleted: edit the draft and choose another.", field)
        for field, pk, name in parts
        if pk is None
    ]


def _changed(draft: Run, now: RunSpec) -> list[FieldError]:
    """What a launch today would take from group and benchmarks, where that is not what the draft was saved with."""
    then = stored_spec(draft)
    parts = (
        ("group", then.agents != now.agents, "agent group"),
        ("benchmark", then.data != now.data, "benchmark"),
        ("evaluation.benchmarks", then.evaluation != now.evaluation, "further benchmarks"),
    )
    return [
        FieldError("changed_since", f"Its {name} changed since it was saved: edit the draft and look at it.", field)
        for field, is_other, name in parts
        if is_other
    ]


def open_cautions(draft: Run) -> list[FieldError]:
    """What is to be confirmed when it is queued; nothing of settings that this version cannot read."""
    try:
        spec = stored_spec(draft)
    except FieldErrors:
        return []
    return [FieldError(caution.code, caution.message, caution.field) for caution in spec.cautions()]


def _differing(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted paths of the settings that are not the same."""
    paths: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            paths += _differing(before, after, f"{prefix}{key}.")
        elif before != after:
            paths.append(f"{prefix}{key}")
    return paths
