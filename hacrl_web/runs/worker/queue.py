"""The queue: the place of each waiting run, and how users reorder them.

Order is by priority, then by key. A user reorders the runs of one project among their own places; the places of other
projects stay as they are. Only staff may pass those, and raise a priority above 0.
"""

from __future__ import annotations

import math
from uuid import UUID

from django.db import transaction

from hacrl_web.accounts.models import User
from hacrl_web.runs.models import Run, RunQuerySet, State
from hacrl_web.web.errors import FieldErrors

MAX_PRIORITY = 100
WRITTEN_AT_ONCE = 500


def places() -> dict[UUID, int]:
    """Place of each waiting run, 1 = next."""
    waiting = Run.objects.in_queue().values_list("pk", flat=True)
    return {pk: place for place, pk in enumerate(waiting, start=1)}


def place_in_queue(run: Run) -> int | None:
    return places().get(run.pk) if run.state == State.QUEUED else None


def movable(user: User, run: Run) -> RunQuerySet:
    """The waiting runs among which the user may move this one, in order."""
    waiting = Run.objects.in_queue()
    return waiting if user.is_staff else waiting.filter(project=run.project_id)


def reorder(user: User, run: Run, *, place: int | None = None, priority: int | None = None) -> None:
    """Change place and priority, unless None; a refused place leaves the priority as it was. Error: FieldErrors."""
    with transaction.atomic():
        if priority is not None:
            set_priority(user, run, priority)
        if place is not None:
            move_run(user, run, place)


def move_run(user: User, run: Run, place: int) -> int:
    """Move a waiting run to `place` (1 = first) among the movable ones; returns its place. Error: FieldErrors (409)."""
    with transaction.atomic():
        waiting = list(movable(user, run).only("priority", "queue_key").select_for_update())
        if run not in waiting:
            raise FieldErrors.single("not_queued", "Only a run that waits in the queue has a place in it.", status=409)
        place = max(1, min(place, len(waiting)))
        slots = [(other.priority, other.queue_key) for other in waiting]
        waiting.insert(place - 1, waiting.pop(waiting.index(run)))
        _write(waiting, slots)
    run.refresh_from_db()
    return place


def _write(order: list[Run], slots: list[tuple[int, float]]) -> None:
    """Give the slots to the runs in this order, with few statements. The later of equal slots gets the next float."""
    changed = []
    last_priority, last_key = MAX_PRIORITY + 1, 0.0
    for run, (priority, key) in zip(order, slots, strict=True):
        if priority == last_priority and key <= last_key:
            key = math.nextafter(last_key, math.inf)
        last_priority, last_key = priority, key
        if (priority, key) != (run.priority, run.queue_key):  # one place up changes two runs of a long queue
            run.priority, run.queue_key = priority, key
            changed.append(run)
    queued = Run.objects.filter(state=State.QUEUED)
    queued.bulk_update(changed, ["priority", "queue_key"], batch_size=WRITTEN_AT_ONCE)


def set_priority(user: User, run: Run, priority: int) -> None:
    """Set the priority of a run: higher starts first. Error: FieldErrors."""
    highest = MAX_PRIORITY if user.is_staff else 0
    if not -MAX_PRIORITY <= priority <= highest:
        why = "" if user.is_staff else "; only staff may put a run before those of others"
        raise FieldErrors.single("out_of_range", f"Must be from {-MAX_PRIORITY} to {highest}{why}.", "priority")
    Run.objects.filter(pk=run.pk).update(priority=priority)
    run.refresh_from_db()
