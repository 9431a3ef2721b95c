"""Follows the runs of all mirrors: a thread for each mirror reads its runs after their cursors, gives the numbers to a
process of its own, and moves a cursor when they arrived.

The watcher calls `tick`; no trainer, supervisor or page waits for a destination. What failed is tried again after a
while that only this process remembers: after a restart it is tried at once, and nothing that arrived is sent again.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from hacrl_web.mirrors.kinds import check_mirror_address
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.process import MirrorFailed, MirrorProcess
from hacrl_web.mirrors.rows import batches, facts_of, read_rows
from hacrl_web.ops.disk_space import full_disk
from hacrl_web.runs.models import TERMINAL, Run
from hacrl_web.web.stored_secrets import SecretUnreadable, decrypt
from workers.contract.allowed_address import AddressRefused

MIRRORS_AT_ONCE = 32  # that are sending or waiting for their destination
SILENT_AT_ONCE = 4  # of those whose destination did not answer the last time
RUNS_OPEN = 16  # of a mirror
IDLE_S = 30.0  # after which a process without news ends
RETRY_AFTER_S = (5.0, 15.0, 60.0, 120.0, 300.0)
log = logging.getLogger(__name__)


class MirrorFollower:
    """Sends the runs of one mirror, with the settings that it has now, until told to end."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self._name = f"mirror {mirror.pk} ({mirror.kind}, {mirror.name})"  # for the log
        self._ended = threading.Event()
        self._process: MirrorProcess | None = None
        self._is_waiting = False  # for the destination
        self._used_at = 0.0
        self._open: dict[UUID, MirrorCursor] = {}  # the runs that the process has open
        self._looked: dict[UUID, int] = {}  # by run: its last event when all complete rows had been sent
        self._retries: dict[UUID | None, tuple[int, float]] = {}  # by run, or None for all: tries and the next one

    # By other threads

    def finish(self) -> None:
        """End soon: close what is open, but give up what is under way."""
        self._ended.set()
        if self._is_waiting:
            self.kill()

    def kill(self) -> None:
        self._ended.set()
        if process := self._process:
            process.kill()

    @property
    def is_silent(self) -> bool:
        return None in self._retries

    # By its own thread

    def follow(self, usual: threading.Semaphore, silent: threading.Semaphore, pause_s: float) -> None:
        """Rounds until the end, each in a place, with a pause where nothing is left to send."""
        rest_s = 0.0
        while not self._ended.wait(rest_s):
            rest_s = pause_s
            if self._waits(None):
                continue
            with silent if self.is_silent else usual:
                try:
                    rest_s = 0.0 if self.send_due() else pause_s
                except Exception:
                    log.exception("%s failed; will try again", self._name)
                finally:
                    connection.close()
        self._end_process()
        connection.close()

    def send_due(self) -> bool:
        """Send some rows of each run that has some. True if there may be more.

        A run that cannot be sent is tried again later; a destination that does not answer, with all runs.
        """
        has_more = False
        try:
            for run_id, last_seq, state in self.mirror.due_runs().values_list("pk", "last_seq", "state"):
                is_known = state not in TERMINAL and self._looked.get(run_id) == last_seq
                if self._ended.is_set() or is_known or self._waits(run_id):
                    continue
                try:
                    has_more |= self._send(run_id)
                    self._retries.pop(run_id, None)
                except MirrorFailed as failure:
                    self._open.pop(run_id, None)
                    if failure.is_silence:
                        raise
                    self._note(run_id, failure)
                    if self._process and not self._process.is_alive:
                        self._drop_process()
            if time.monotonic() - self._used_at > IDLE_S or not self._open:
                self._end_process()
        except MirrorFailed as failure:
            self._drop_process()
            self._note(None, failure)
        except BaseException:  # what was sent may not have been noted: the next try begins at the cursor
            self._drop_process()
            raise
        return has_more

    def _waits(self, run_id: UUID | None) -> bool:
        return run_id in self._retries and self._retries[run_id][1] > time.monotonic()

    def _note(self, run_id: UUID | None, failure: MirrorFailed) -> None:
        """One run failed, or the destination did not answer; but not if the mirror was changed meanwhile."""
        if self._ended.is_set():
            return
        log.warning("%s, run %s: %s", self._name, run_id, failure)
        tries, _ = self._retries.get(run_id, (0, 0.0))
        wait_s = RETRY_AFTER_S[min(tries, len(RETRY_AFTER_S) - 1)]
        self._retries[run_id] = tries + 1, time.monotonic() + wait_s
        if run_id is None:
            self._set_silence(str(failure))
        else:
            MirrorCursor.objects.filter(mirror=self.mirror, run=run_id).update(problem=str(failure))

    def _set_silence(self, text: str) -> None:
        if self.mirror.silence != text:
            Mirror.objects.filter(pk=self.mirror.pk).update(silence=text)
            self.mirror.silence = text

    def _send(self, run_id: UUID) -> bool:
        """Send the next complete rows of a run. True if there may be more. Error: MirrorFailed."""
        run = Run.objects.select_related("project", "group", "benchmark").get(pk=run_id)
        cursor = self._open.get(run.pk) or MirrorCursor.objects.get_or_create(mirror=self.mirror, run=run)[0]
        page = read_rows(run, cursor.seq)
        if page.rows or run.is_terminal:
            if sentence := full_disk():
                raise MirrorFailed(sentence)
            if run.pk not in self._open:
                self._begin(run, cursor)
                page = read_rows(run, cursor.seq)  # behind what the destination has
        for batch in batches(self.mirror, run, page.rows, cursor.seq):
            state = self._ask(op="rows", run=str(run.pk), rows=[asdict(row) for row in batch])["state"]
            last = batch[-1]
            cursor.move(seq=last.seq, step=last.step, state=state, sent_at=timezone.now(), problem="")
        if page.seq > cursor.seq:
            cursor.move(seq=page.seq)
        if not page.is_last:
            return True
        self._looked[run.pk] = run.last_seq
        if run.is_terminal:
            self._close(run.pk, run.state)
            cursor.move(is_done=True, problem="")
        return False

    def _begin(self, run: Run, cursor: MirrorCursor) -> None:
        mirror = self.mirror
        try:
            secret = decrypt(mirror.secret_name, mirror.ciphertext) if mirror.ciphertext else ""
            if mirror.options.get("url"):
                check_mirror_address(mirror.options["url"])  # the list may have changed
        except (SecretUnreadable, AddressRefused) as error:
            raise MirrorFailed(str(error)) from None
        if len(self._open) >= RUNS_OPEN:
            self._close(next(iter(self._open)))
        self._process = self._process or MirrorProcess(mirror.files)
        answer = self._ask(
            op="open",
            run=str(run.pk),
            kind=mirror.kind,
            options=mirror.options,
            secret=secret,
            folder=str(mirror.files),
            facts=facts_of(run),
            after=cursor.seq,
            state=cursor.state,
        )
        seq = min(int(answer["after"]), cursor.seq)  # the destination may have lost what it had
        cursor.move(seq=seq, state=answer["state"], url=str(answer["url"])[:500])
        self._open[run.pk] = cursor

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process
        self._is_waiting = True
        try:
            if self._ended.is_set():
                raise MirrorFailed("The mirror was changed, or the watcher ends.")
            answer = self._process.ask(**request)
        finally:
            self._is_waiting = False
        if request["op"] != "open":  # the destination has taken something
            self._used_at = time.monotonic()
            self._retries.pop(None, None)
            self._set_silence("")
        return answer

    def _close(self, run_id: UUID, status: str = "") -> None:
        cursor = self._open.pop(run_id)
        cursor.move(state=self._ask(op="close", run=str(run_id), status=status)["state"])

    def _end_process(self) -> None:
        """Close what is open, and end."""
        try:
            while self._process and self._open:
                run_id, cursor = self._open.popitem()
                cursor.move(state=self._process.ask(op="close", run=str(run_id), status="")["state"])
        except MirrorFailed as failure:  # it is opened again where that is known
            log.warning("%s: a session did not close: %s", self._name, failure)
        self._drop_process()

    def _drop_process(self) -> None:
        """End it without closing; nothing that was acknowledged is lost."""
        self._open.clear()
        if self._process:
            self._process.end()
        self._process = None


class MirrorFollowers:
    """Keeps one follower, with the present settings, for each mirror: the watcher calls `tick`.

    A destination that does not answer holds a place of others for one try only: then its mirror shares SILENT_AT_ONCE
    places with other silent ones, until it has taken something.
    """

    def __init__(self, pause_s: float = 1.0) -> None:
        self._pause_s = pause_s
        self._followers: dict[int, tuple[MirrorFollower, threading.Thread]] = {}
        self._places = threading.Semaphore(MIRRORS_AT_ONCE), threading.Semaphore(SILENT_AT_ONCE)

    def tick(self) -> None:
        mirrors = {row.pk: row for row in Mirror.objects.filter(is_enabled=True).select_related("project")}
        for pk, (follower, thread) in list(self._followers.items()):
            if pk not in mirrors or mirrors[pk].sent_settings != follower.mirror.sent_settings:
                follower.finish()
            if not thread.is_alive():
                del self._followers[pk]
        for pk in mirrors.keys() - self._followers:
            follower = MirrorFollower(mirrors[pk])
            thread = threading.Thread(target=follower.follow, args=(*self._places, self._pause_s), daemon=True)
            self._followers[pk] = follower, thread
            thread.start()

    def stop(self) -> None:
        """End all at once. What was not acknowledged is sent after the next start."""
        for follower, _ in self._followers.values():
            follower.kill()
        for _, thread in self._followers.values():
            thread.join()
