"""Sends what is due: reads the stored numbers behind each cursor and moves it when the destination has them.

It runs in a thread of the watcher, one more for each mirror that is busy, so a destination that hangs delays no other
mirror; nothing here is on the way of a trainer, its supervisor or a page.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from hacrl_web.mirrors.event_rows import read_rows
from hacrl_web.mirrors.kinds import check_mirror_address
from hacrl_web.mirrors.models import Choice, Mirror, MirrorCursor, Sends
from hacrl_web.mirrors.process import MirrorFailed, MirrorProcess, kill_all
from hacrl_web.runs.models import TERMINAL, Run
from hacrl_web.web.stored_secrets import SecretUnreadable, decrypt
from workers.contract.spec.allowed_address import AddressRefused

BUSY_AT_ONCE = 8  # mirrors
RUNS_AT_ONCE = 20  # of a mirror in one round
SESSIONS_KEPT = 4  # processes of a mirror between two rounds
IDLE_S = 30.0  # after which a process without news ends
RETRY_AFTER_S = (5, 15, 60, 120, 300)
log = logging.getLogger(__name__)


def mirror_folder(mirror: Mirror) -> Path:
    """The files of a mirror, on the host of the watcher."""
    return Path(settings.DATA_DIR) / "mirrors" / f"{mirror.kind}-{mirror.pk}"


def due_runs(mirror: Mirror) -> QuerySet[Run]:
    """Runs with something to send, the oldest first."""
    cursors = MirrorCursor.objects.filter(mirror=mirror, run=OuterRef("pk"))
    is_chosen = Exists(cursors.filter(choice=Choice.ON))
    if mirror.sends == Sends.NEW:
        is_chosen = Q(is_chosen) | Q(created_at__gte=mirror.created_at) & ~Exists(cursors.filter(choice=Choice.OFF))
    is_settled = cursors.filter(Q(is_done=True) | Q(next_try_at__gt=timezone.now()))
    is_read = cursors.filter(read_seq__gte=OuterRef("last_seq"))
    runs = Run.objects.filter(is_chosen, project=mirror.project_id, last_seq__gt=0).exclude(Exists(is_settled))
    return runs.filter(Q(state__in=TERMINAL) | ~Exists(is_read)).order_by("created_at", "pk")


@dataclass
class OpenSession:
    """A process that has a run open, and what was sent by it."""

    process: MirrorProcess
    after: int
    state: dict[str, Any]
    used_at: float = field(default_factory=time.monotonic)


class MirrorSender:
    """Sends the runs of one mirror. Only one thread uses it at a time."""

    def __init__(self, mirror_id: int) -> None:
        self._mirror_id = mirror_id
        self._sessions: dict[UUID, OpenSession] = {}

    def serve(self) -> int:
        """Send what is due; returns the number of rows. A run that cannot be sent is tried again later."""
        mirror = Mirror.objects.filter(pk=self._mirror_id, is_enabled=True).select_related("project").first()
        if mirror is None:
            self.close()
            return 0
        count = 0
        for run in due_runs(mirror).select_related("project", "group", "benchmark")[:RUNS_AT_ONCE]:
            cursor, _ = MirrorCursor.objects.get_or_create(mirror=mirror, run=run)
            try:
                count += self._send(mirror, run, cursor)
            except MirrorFailed as failure:
                self._forget(run.pk)
                _note_failure(cursor, str(failure))
        self._end_idle()
        return count

    def _send(self, mirror: Mirror, run: Run, cursor: MirrorCursor) -> int:
        session = self._session(mirror, run, cursor)
        after, step, count = session.after, cursor.step, 0
        while True:
            reading = read_rows(run, after)
            if reading.rows:
                answer = session.process.ask(op="rows", rows=[asdict(row) for row in reading.rows])
                session.state, step = answer["state"], reading.rows[-1].step
                count += len(reading.rows)
            is_new, after = reading.read_seq > after, reading.read_seq
            session.after, session.used_at = after, time.monotonic()
            if is_new:
                _move(cursor, seq=after, step=step, state=session.state, sent_at=timezone.now())
            if not is_new or reading.is_at_end:
                break
        if run.is_terminal:
            session.state = session.process.ask(op="close", status=run.state)["state"]
            self._forget(run.pk)
        values = {"read_seq": run.last_seq, "is_done": run.is_terminal, "state": session.state}
        _move(cursor, **values, problem="", tries=0)
        return count

    def _session(self, mirror: Mirror, run: Run, cursor: MirrorCursor) -> OpenSession:
        session = self._sessions.get(run.pk)
        if session is not None and session.process.is_alive:
            return session
        try:
            secret = decrypt(mirror.secret_name, mirror.ciphertext) if mirror.ciphertext else ""
            if mirror.options.get("url"):
                check_mirror_address(mirror.options["url"])  # the list may have changed
        except (SecretUnreadable, AddressRefused) as error:
            raise MirrorFailed(str(error)) from None
        process = MirrorProcess(mirror_folder(mirror))
        answer = process.ask(
            op="open",
            kind=mirror.kind,
            options=mirror.options,
            secret=secret,
            folder=str(mirror_folder(mirror)),
            run=_facts(run),
            after=cursor.seq,
            state=cursor.state,
        )
        session = OpenSession(process, min(int(answer["after"]), cursor.seq), answer["state"])
        self._sessions[run.pk] = session
        _move(cursor, seq=session.after, state=session.state, url=str(answer["url"])[:500])
        return session

    def _forget(self, run_id: UUID) -> None:
        session = self._sessions.pop(run_id, None)
        if session is not None:
            session.process.end()

    def _end_idle(self) -> None:
        """Close the sessions that were idle for long, and those beyond SESSIONS_KEPT."""
        by_use = sorted(self._sessions, key=lambda run_id: self._sessions[run_id].used_at)
        limit = time.monotonic() - IDLE_S
        surplus = set(by_use[: max(0, len(by_use) - SESSIONS_KEPT)])
        for run_id in by_use:
            if run_id in surplus or self._sessions[run_id].used_at < limit:
                self._close(run_id)

    def _close(self, run_id: UUID) -> None:
        session = self._sessions[run_id]
        cursor = MirrorCursor.objects.filter(mirror_id=self._mirror_id, run_id=run_id).first()
        try:
            state = session.process.ask(op="close", status="")["state"]
            if cursor is not None:
                _move(cursor, state=state)
        except MirrorFailed as failure:
            if cursor is not None:
                _note_failure(cursor, str(failure))
        self._forget(run_id)

    def close(self) -> None:
        """End all processes."""
        for run_id in list(self._sessions):
            self._close(run_id)


def _facts(run: Run) -> dict[str, Any]:
    """As workers.mirrors.messages.MirroredRun."""
    return {
        "id": str(run.pk),
        "name": run.name,
        "project": str(run.project),
        "url": f"{settings.PUBLIC_URL}{run.get_absolute_url()}" if settings.PUBLIC_URL else "",
        "tags": run.tag_list,
        "created": run.created_at.timestamp(),
        "settings": _flat(run.spec),
    }


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Settings by dotted path; lists of plain values as text."""
    if isinstance(value, dict):
        parts = (_flat(item, f"{path}.{key}" if path else str(key)) for key, item in value.items())
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        parts = (_flat(item, f"{path}.{place}") for place, item in enumerate(value))
    else:
        return {path: value if isinstance(value, bool | int | float | str) else str(value)}
    return {name: item for part in parts for name, item in part.items()}


def _move(cursor: MirrorCursor, **values: Any) -> None:
    MirrorCursor.objects.filter(pk=cursor.pk).update(**values)
    for name, value in values.items():
        setattr(cursor, name, value)


def _note_failure(cursor: MirrorCursor, problem: str) -> None:
    wait_s = RETRY_AFTER_S[min(cursor.tries, len(RETRY_AFTER_S) - 1)]
    log.warning("mirror %s, run %s: %s", cursor.mirror_id, cursor.run_id, problem)
    MirrorCursor.objects.filter(pk=cursor.pk).update(
        problem=problem[:400], tries=F("tries") + 1, next_try_at=timezone.now() + timedelta(seconds=wait_s)
    )


class Mirrorer:
    """The job of the watcher: each tick gives every mirror that is idle to a thread of its own."""

    def __init__(self) -> None:
        self._senders: dict[int, MirrorSender] = {}
        self._busy: dict[int, Future[int]] = {}
        self._pool = ThreadPoolExecutor(BUSY_AT_ONCE, thread_name_prefix="mirror")
        self._is_stopped = False

    def tick(self) -> None:
        if self._is_stopped:
            return
        mirrors = set(Mirror.objects.values_list("pk", flat=True)) | set(self._senders)
        self._busy = {pk: task for pk, task in self._busy.items() if not task.done()}
        for pk in mirrors - set(self._busy):
            sender = self._senders.setdefault(pk, MirrorSender(pk))
            self._busy[pk] = self._pool.submit(self._serve, sender)

    def _serve(self, sender: MirrorSender) -> int:
        try:
            return sender.serve()
        except Exception:
            log.exception("a mirror failed; will try again")
            return 0
        finally:
            connection.close()

    def stop(self) -> None:
        """End all processes at once. What was not acknowledged is sent after the next start."""
        self._is_stopped = True
        kill_all()
        self._pool.shutdown(wait=True, cancel_futures=True)
        kill_all()
