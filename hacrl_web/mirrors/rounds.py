"""The rounds of all mirrors, in the watcher: each mirror that has something to send gets a thread for a while.

A destination that does not answer delays no other mirror: after PATIENCE_S the mirror that waits for it no longer
counts towards BUSY_AT_ONCE, and until it has sent a run again it shares SILENT_AT_ONCE threads with other silent ones.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils import timezone

from hacrl_web.mirrors.models import SENT_SETTINGS, Mirror
from hacrl_web.mirrors.process import kill_all
from hacrl_web.mirrors.sending import MirrorSender

BUSY_AT_ONCE = 8  # mirrors whose destination answers
PATIENCE_S = 3.0  # after which one that is waited for does not count among them
MOST_AT_ONCE = 32  # with those
SILENT_AT_ONCE = 4  # mirrors whose destination did not answer the last time
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Round:
    """A mirror that is being served. was_silent: its destination did not answer the last time."""

    task: Future[int]
    was_silent: bool


class MirrorScheduler:
    """The job of the watcher: each tick gives the mirrors that wait the longest to free threads."""

    def __init__(self) -> None:
        self._senders: dict[int, MirrorSender] = {}  # the one that was served last is the last
        self._busy: dict[int, _Round] = {}
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE + SILENT_AT_ONCE, thread_name_prefix="mirror")
        self._is_stopped = False

    def tick(self) -> None:
        if self._is_stopped:
            return
        columns = ("pk", "tries", "next_try_at", *SENT_SETTINGS)
        enabled = Mirror.objects.filter(is_enabled=True).order_by("pk")
        rows = {row.pk: row for row in enabled.values_list(*columns, named=True)}
        self._busy = {pk: one for pk, one in self._busy.items() if not one.task.done()}
        for pk in self._busy:
            settings = tuple(getattr(rows[pk], name) for name in SENT_SETTINGS) if pk in rows else None
            self._senders[pk].interrupt(settings)
        for pk in rows:
            self._senders.setdefault(pk, MirrorSender(pk))
        for pk in [pk for pk in self._senders if pk not in self._busy]:
            self._give_turn(pk, rows.get(pk))

    def _give_turn(self, pk: int, row: Any) -> None:
        """row: its columns; None if it is paused or removed."""
        sender = self._senders[pk]
        if row is None and not sender.has_sessions:
            del self._senders[pk]
        elif row is None or row.next_try_at <= timezone.now():
            was_silent = row is not None and row.tries > 0
            if self._has_thread(was_silent):
                self._senders[pk] = self._senders.pop(pk)
                self._busy[pk] = _Round(self._pool.submit(self._serve, sender), was_silent)

    def _has_thread(self, was_silent: bool) -> bool:
        """Whether one more mirror of this kind may be served now."""
        same = [self._senders[pk] for pk, one in self._busy.items() if one.was_silent == was_silent]
        if was_silent:
            return len(same) < SILENT_AT_ONCE
        return len(same) < MOST_AT_ONCE and sum(one.waiting_s < PATIENCE_S for one in same) < BUSY_AT_ONCE

    def _serve(self, sender: MirrorSender) -> int:
        try:
            return sender.serve()
        except Exception:
            log.exception("%s failed; will try again", sender.subject)
            return 0
        finally:
            connection.close()

    def stop(self) -> None:
        """End all processes at once. What was not acknowledged is sent after the next start."""
        self._is_stopped = True
        for sender in list(self._senders.values()):
            sender.end()
        kill_all()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for sender in self._senders.values():
            sender.forget_all()
