"""The queue: who waits, in which place, and how people reorder it without passing those who are not theirs.

Order is by priority, then by key. A user reorders the runs of a project among the places that they hold together; other
projects' places stay as they are. Only staff may pass those, and raise a priority above 0.
"""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

from django.db import transaction

from hacrl_web.runs.models import Run, RunQuerySet, State
from hacrl_web.web.errors import FieldError, FieldErrors

MAX_PRIORITY = 100
WRITTEN_AT_ONCE = 500


def places() -> dict[UUID, int]:
    """Place of each run that waits, 1 = next."""
    waiting = Run.objects.in_queue().values_list("pk", flat=True)
    return {pk: place for place, pk in enumerate(waiting, start=1)}


def place_in_queue(run: Run) -> int | None:
    return places().get(run.pk) if run.state == State.QUEUED else None


def _refused(code: str, message: str, field: str | None, status: int = 422) -> FieldErrors:
    return FieldErrors([FieldError(code, message, field)], status)


def movable(user: Any, run: Run) -> RunQuerySet:
    """The waiting runs among which the user may move this one, in their order."""
    waiting = Run.objects.in_queue()
    return waiting if user.is_staff else waiting.filter(project=run.project_id)


def move_run(user: Any, run: Run, place: int) -> int:
    """Give a waiting run the given place (1 = first) among those it may be moved among; returns the place it has.

    Error: FieldErrors where the run does not wait.
    """
    with transaction.atomic():
        waiting = list(movable(user, run).only("priority", "queue_key").select_for_update())
        order = [other.pk for other in waiting]
        if run.pk not in order:
            raise _refused("not_queued", "Only a run that waits in the queue has a place in it.", None, 409)
        place = max(1, min(place, len(order)))
        order.remove(run.pk)
        order.insert(place - 1, run.pk)
        _write(waiting, order)
    run.refresh_from_db()
    return place


def _write(waiting: list[Run], order: list[UUID]) -> None:
    """Give the slots of the waiting runs, as they stand, to the runs of this order: few statements, however many."""
    slots = _distinct([(other.priority, other.queue_key) for other in waiting])
    runs = {other.pk: other for other in waiting}
    changed = []
    for pk, slot in zip(order, slots, strict=True):
        other = runs[pk]
        if slot != (other.priority, other.queue_key):  # a step up in a long queue moves two runs, not all of them
            other.priority, other.queue_key = slot
            changed.append(other)
    Run.objects.filter(state=State.QUEUED).bulk_update(changed, ["priority", "queue_key"], batch_size=WRITTEN_AT_ONCE)


def _distinct(slots: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The same slots in order; of equal ones, the later is moved up by as little as a float can be."""
    places: list[tuple[int, float]] = []
    for priority, key in slots:
        if places and places[-1][0] == priority and key <= places[-1][1]:
            key = math.nextafter(places[-1][1], math.inf)
        places.append((priority, key))
    return places


def set_priority(user: Any, run: Run, priority: int) -> None:
    """Higher starts first. Error: FieldErrors."""
    highest = MAX_PRIORITY if user.is_staff else 0
    if not -MAX_PRIORITY <= priority <= highest:
        why = "" if user.is_staff else "; only staff may put a run before those of others"
        raise _refused("out_of_range", f"Must be from {-MAX_PRIORITY} to {highest}{why}.", "priority")
    Run.objects.filter(pk=run.pk).update(priority=priority)
    run.refresh_from_db()
