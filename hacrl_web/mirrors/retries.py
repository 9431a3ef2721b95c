"""When a mirror, or one run of it, is tried again after a failure."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.db.models import F, QuerySet
from django.utils import timezone

from hacrl_web.mirrors.models import Mirror, MirrorCursor

RETRY_AFTER_S = (5.0, 15.0, 60.0, 120.0, 300.0)
log = logging.getLogger(__name__)


def note_run_failure(mirror: Mirror, cursor: MirrorCursor, problem: str) -> None:
    """One run could not be sent."""
    log.warning("mirror %s, run %s: %s", cursor.mirror_id, cursor.run_id, problem)
    if _unchanged(mirror).exists():
        MirrorCursor.objects.filter(pk=cursor.pk).update(**_failure(cursor.tries, problem))


def note_silence(mirror: Mirror, problem: str) -> None:
    """The destination did not answer in time: no run is sent before the next try."""
    _unchanged(mirror).update(**_failure(mirror.tries, problem))


def note_answer(mirror: Mirror) -> None:
    """A run was sent: the destination answers."""
    if mirror.tries:
        mirror.tries = 0
        _unchanged(mirror).update(tries=0, problem="")


def _failure(tries: int, problem: str) -> dict[str, Any]:
    """The columns after one more failed try, after `tries`."""
    wait_s = RETRY_AFTER_S[min(tries, len(RETRY_AFTER_S) - 1)]
    next_try_at = timezone.now() + timedelta(seconds=wait_s)
    return {"problem": problem[:400], "tries": F("tries") + 1, "next_try_at": next_try_at}


def _unchanged(mirror: Mirror) -> QuerySet[Mirror]:
    """Its row, unless somebody has changed the mirror since it was read: then it is tried at once, whatever happened.

    A change sets next_try_at to its own time (mirrors.change_mirror).
    """
    return Mirror.objects.filter(pk=mirror.pk, next_try_at=mirror.next_try_at)
