"""Sends the due runs of one mirror: reads the numbers after each run's cursor, and moves the cursor when they arrived.

It runs in a thread of the watcher (rounds.py); no trainer, supervisor or page waits for it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from django.utils import timezone

from hacrl_web.mirrors.event_rows import read_rows
from hacrl_web.mirrors.kinds import check_mirror_address
from hacrl_web.mirrors.mirrored_run import facts_of
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.process import MirrorFailed, MirrorProcess, MirrorSilent
from hacrl_web.mirrors.retries import note_answer, note_run_failure, note_silence
from hacrl_web.mirrors.rollout_rows import RowBatches
from hacrl_web.ops.disk_space import full_disk
from hacrl_web.runs.models import Run
from hacrl_web.web.stored_secrets import SecretUnreadable, decrypt
from workers.allowed_address import AddressRefused

RUNS_AT_ONCE = 20  # of a mirror in one round
SESSIONS_KEPT = 4  # processes of a mirror between two rounds
IDLE_S = 30.0  # after which a process without news ends
ROWS_AT_ONCE = 256
ROUND_S = 120.0  # after which a mirror gives its thread to another and waits for its next turn
SILENT_S = 10.0  # a failure after that long counts as no answer
log = logging.getLogger(__name__)


@dataclass
class OpenSession:
    """A process that has a run open, and what was sent by it. size: rows of the next batch."""

    process: MirrorProcess
    after: int
    state: dict[str, Any]
    size: int
    used_at: float = field(default_factory=time.monotonic)


class Interrupted(Exception):
    """The mirror was changed, paused or removed while the destination was asked, or the watcher ends."""


class MirrorSender:
    """Sends the runs of one mirror. Only one thread uses it at a time; any may interrupt it."""

    def __init__(self, mirror_id: int) -> None:
        self._mirror_id = mirror_id
        self._sessions: dict[UUID, OpenSession] = {}
        self._settings: tuple[Any, ...] | None = None
        self._process: MirrorProcess | None = None  # that is being asked
        self._asked_at = 0.0
        self._round_ends_at = 0.0
        self.subject = f"mirror {mirror_id}"  # what is sent where, for the log
        self._is_interrupted = self._is_ended = False

    @property
    def waiting_s(self) -> float:
        """Seconds since the destination was asked; 0 while nothing is asked."""
        return time.monotonic() - self._asked_at if self._process else 0.0

    @property
    def has_sessions(self) -> bool:
        return bool(self._sessions)

    def interrupt(self, settings: tuple[Any, ...] | None) -> None:
        """End the round unless it uses these settings (SENT_SETTINGS). None: the mirror is paused or removed."""
        if settings != self._settings:
            self._is_interrupted = True
            self._kill()

    def end(self) -> None:
        """End the round and every later one, and all processes, at once."""
        self._is_ended = True
        self._kill()

    def _kill(self) -> None:
        if process := self._process:
            process.kill()

    def serve(self) -> int:
        """Send what is due; returns the number of rows. A run that cannot be sent is tried again later.

        A destination that does not answer in time is left alone for a while, with all runs.
        """
        self._is_interrupted = False
        mirror = Mirror.objects.filter(pk=self._mirror_id, is_enabled=True).select_related("project").first()
        try:
            return self._serve(mirror)
        except Interrupted:
            self.forget_all()
            return 0
        except MirrorSilent as silence:
            self.forget_all()
            if mirror is not None:
                note_silence(mirror, str(silence))
            return 0

    def _serve(self, mirror: Mirror | None) -> int:
        settings = mirror.sent_settings if mirror else None
        self.subject = f"mirror {self._mirror_id} ({mirror.kind}, {mirror.name})" if mirror else self.subject
        if settings != self._settings:
            self._settings = settings
            self._close_all()
        if mirror is None or mirror.next_try_at > timezone.now():
            return 0
        count, self._round_ends_at = 0, time.monotonic() + ROUND_S
        for run in mirror.due_runs().select_related("project", "group", "benchmark")[:RUNS_AT_ONCE]:
            self.subject = f"mirror {mirror.pk} ({mirror.kind}, {mirror.name}), run {run.pk} ({run.name})"
            cursor, _ = MirrorCursor.objects.get_or_create(mirror=mirror, run=run)
            try:
                count += self._send(mirror, run, cursor)
            except MirrorFailed as failure:
                self._forget(run.pk)
                note_run_failure(mirror, cursor, str(failure))
                if isinstance(failure, MirrorSilent):
                    raise
            else:
                note_answer(mirror)
            if time.monotonic() > self._round_ends_at:
                break
        self._end_idle(mirror)
        return count

    def _ask(self, process: MirrorProcess, **request: Any) -> dict[str, Any]:
        """Errors: MirrorFailed, MirrorSilent where that took long, Interrupted."""
        self._asked_at = started_at = time.monotonic()
        self._process = process
        try:
            if self._is_interrupted or self._is_ended:
                process.end()
                raise Interrupted
            return process.ask(**request)
        except MirrorFailed as failure:
            if self._is_interrupted or self._is_ended:
                raise Interrupted from None
            if time.monotonic() - started_at >= SILENT_S:
                raise MirrorSilent(str(failure)) from None
            raise
        finally:
            self._process = None

    def _send(self, mirror: Mirror, run: Run, cursor: MirrorCursor) -> int:
        if sentence := full_disk():
            raise MirrorFailed(sentence)
        session, count = self._session(mirror, run, cursor), 0
        while True:
            start, reading = session.after, read_rows(run, session.after)
            batches = RowBatches(mirror, run, reading.rows, session.after)
            while some := batches.take(session.size):
                answer = self._ask(session.process, op="rows", rows=[asdict(row) for row in some])
                session.state, session.size = answer["state"], min(2 * session.size, ROWS_AT_ONCE)
                self._note(cursor, session, some[-1].seq, some[-1].step)
                count += len(some)
                if time.monotonic() > self._round_ends_at:
                    cursor.move(problem="", tries=0)
                    return count
            if reading.read_seq > session.after:
                self._note(cursor, session, reading.read_seq, cursor.step)
            if session.after == start or reading.is_at_end:
                break
        if run.is_terminal:
            session.state = self._ask(session.process, op="close", status=run.state)["state"]
            self._forget(run.pk)
        values = {"read_seq": run.last_seq, "is_done": run.is_terminal, "state": session.state}
        cursor.move(**values, problem="", tries=0)
        return count

    def _note(self, cursor: MirrorCursor, session: OpenSession, seq: int, step: int) -> None:
        session.after, session.used_at = seq, time.monotonic()
        cursor.move(seq=seq, step=step, state=session.state, sent_at=timezone.now())

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
        try:
            process = MirrorProcess(mirror.folder)
        except OSError as error:  # no disk, no memory, no such Python: tried again later, not every second
            raise MirrorFailed(f"The process that sends cannot be started ({error.strerror}).") from None
        answer = self._ask(
            process,
            op="open",
            kind=mirror.kind,
            options=mirror.options,
            secret=secret,
            folder=str(mirror.folder),
            run=facts_of(run),
            after=cursor.seq,
            state=cursor.state,
        )
        # A destination that was too slow for many rows at once may be quick enough for some.
        size = max(1, ROWS_AT_ONCE >> 2 * cursor.tries)
        session = OpenSession(process, min(int(answer["after"]), cursor.seq), answer["state"], size)
        self._sessions[run.pk] = session
        cursor.move(seq=session.after, state=session.state, url=str(answer["url"])[:500])
        return session

    def _forget(self, run_id: UUID) -> None:
        session = self._sessions.pop(run_id, None)
        if session is not None:
            session.process.end()

    def _end_idle(self, mirror: Mirror) -> None:
        """Close the sessions that were idle for long, and those beyond SESSIONS_KEPT."""
        by_use = sorted(self._sessions, key=lambda run_id: self._sessions[run_id].used_at)
        limit = time.monotonic() - IDLE_S
        surplus = set(by_use[: max(0, len(by_use) - SESSIONS_KEPT)])
        for run_id in by_use:
            if run_id not in surplus and self._sessions[run_id].used_at >= limit:
                continue
            cursor = self._cursor(run_id)
            try:
                self._close(run_id, cursor)
            except MirrorFailed as failure:
                if cursor is not None:
                    note_run_failure(mirror, cursor, str(failure))
                if isinstance(failure, MirrorSilent):
                    raise

    def _cursor(self, run_id: UUID) -> MirrorCursor | None:
        return MirrorCursor.objects.filter(mirror_id=self._mirror_id, run_id=run_id).first()

    def _close(self, run_id: UUID, cursor: MirrorCursor | None) -> None:
        """Errors: as _ask."""
        session = self._sessions.pop(run_id)
        try:
            state = self._ask(session.process, op="close", status="")["state"]
            if cursor is not None:
                cursor.move(state=state)
        finally:
            session.process.end()

    def _close_all(self) -> None:
        """Close the sessions of earlier settings. A failure is logged only: the new settings did not cause it."""
        for run_id in list(self._sessions):
            try:
                self._close(run_id, self._cursor(run_id))
            except MirrorFailed as failure:
                log.warning("%s: the session of its earlier settings did not close: %s", self.subject, failure)
                if isinstance(failure, MirrorSilent):
                    self.forget_all()
                    return

    def forget_all(self) -> None:
        """End all processes without closing their sessions; nothing that was acknowledged is lost."""
        for run_id in list(self._sessions):
            self._forget(run_id)
