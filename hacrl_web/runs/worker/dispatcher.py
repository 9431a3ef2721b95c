"""Keeps the queue moving: rings for queued runs until a worker has them, and takes back runs whose supervisor is gone.

It trusts only its own watch: a run is lost when its heartbeat did not change for a while in which this process could
read the database. So clock jumps, reboots and a database that was away lose nobody.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import InterfaceError, OperationalError
from django.db.models import Q

from hacrl_web.runs import worker_queue
from hacrl_web.runs.models import HELD, USER_STOP, Desire, Host, Run, State
from hacrl_web.runs.pubsub import publish_update
from hacrl_web.runs.worker.finish_lost import finish_lost_run
from hacrl_web.runs.worker.hosts import boot_id, host_name, process_start

RING_EVERY_S = 10.0
RINGS_AT_ONCE = 20
LEASE_S = 45.0  # above the 20 s that SQLite may keep a writer waiting
log = logging.getLogger(__name__)


@dataclass
class Watched:
    """When this process saw a run's heartbeat change."""

    beat: tuple[int, datetime | None]
    changed_at: float


class Dispatcher:
    """`tick` once a second; every tick is complete in itself, so errors of one do not matter to the next."""

    def __init__(self, watch: Callable[[], float] = time.monotonic) -> None:
        self._now = watch
        self._rung_at: dict[UUID, float] = {}
        self._watched: dict[UUID, Watched] = {}
        self._last_look = watch()

    def tick(self) -> None:
        self.reap()
        self.revive()
        self.notify_workers()

    def notify_workers(self) -> int:
        """Ring for queued runs that were not rung lately; returns how often it rang.

        A message that waits means that no worker is free, so more of them would only pile up: it rings when none waits.
        """
        now = self._now()
        queued = dict(Run.objects.in_queue().values_list("pk", "data_folder")[:500])
        self._rung_at = {pk: at for pk, at in self._rung_at.items() if pk in queued}
        due: dict[str, list[UUID]] = {}  # by the folder that they wait for
        for pk, folder in queued.items():
            if now - self._rung_at.get(pk, -RING_EVERY_S) >= RING_EVERY_S:
                due.setdefault(folder, []).append(pk)
        rung = 0
        for folder, runs in due.items():
            if worker_queue.waiting(folder) != 0:
                continue
            for pk in runs[:RINGS_AT_ONCE]:
                if not worker_queue.notify_worker(pk, folder):
                    return rung
                self._rung_at[pk] = now
                rung += 1
        return rung

    def reap(self) -> None:
        """Take back each held run whose supervisor's process is gone from this host, or which has stopped to beat."""
        now = self._now()
        runs = list(Run.objects.filter(state__in=HELD))
        if now - self._last_look > LEASE_S / 3:  # this process slept or could not read: what it missed proves nothing
            self._watched.clear()
        self._last_look = now
        earlier, self._watched = self._watched, {}
        for run in runs:
            beat = (run.attempt, run.heartbeat_at)
            before = earlier.get(run.pk)
            self._watched[run.pk] = before if before and before.beat == beat else Watched(beat, now)
        boots = dict(Host.objects.values_list("name", "boot_id")) | {host_name(): boot_id()}
        _each(runs, lambda run: self._take_back_if_gone(run, boots))

    def _take_back_if_gone(self, run: Run, boots: dict[str, str]) -> None:
        silent_s = self._last_look - self._watched[run.pk].changed_at
        if _is_rebooted(run, boots):
            self._take_back(run, f"host {run.worker_host} was restarted")
        elif _is_process_gone(run):
            self._take_back(run, f"its worker process on {run.worker_host} is gone")
        elif silent_s > LEASE_S:
            self._take_back(run, f"no heartbeat from {run.worker_host} for {silent_s:.0f} s")

    def _take_back(self, run: Run, reason: str) -> None:
        # Only from the attempt just seen: a supervisor that ends the run meanwhile wins.
        if run.transition_to(State.LOST, reason=reason, attempt=run.attempt):
            log.warning("run %s is lost: %s", run.pk, reason)
            publish_update(run.pk)

    def revive(self) -> None:
        """Give lost runs back to the queue; end those interrupted too often, and idle ones that are to stop."""
        # An idle run that is to stop: it was lost once, or whoever wished it died before the end was written.
        unwanted = Q(state__in=[State.QUEUED, State.PAUSED], desired_state=Desire.STOP)
        held_out = Q(state=State.QUEUED, desired_state=Desire.PAUSE)
        _each(Run.objects.filter(unwanted | held_out | Q(state=State.LOST)), _revive)
        # A paused run that is to go on: whoever resumed it died in between.
        for run in Run.objects.filter(state=State.PAUSED, desired_state=Desire.RUN):
            run.transition_to(State.QUEUED, reason="resumed")
            publish_update(run.pk)


def _revive(run: Run) -> None:
    if run.will_end and not finish_lost_run(run):
        return
    if run.desired_state == Desire.STOP:
        run.transition_to(State.STOPPED, reason=run.desire_reason or USER_STOP, attempt=run.attempt)
    elif run.state == State.QUEUED:
        run.transition_to(State.PAUSED, reason=run.desire_reason, attempt=run.attempt)
    else:
        reason = f"{run.reason}; waiting for host {run.worker_host}, which holds its files"
        run.requeue(reason=reason, attempt=run.attempt, is_interruption=True)
    publish_update(run.pk)


def _each(runs: Iterable[Run], act: Callable[[Run], None]) -> None:
    """Act on every run: one that fails, such as by an unreadable run directory, does not keep the others from it."""
    for run in runs:
        try:
            act(run)
        except (OperationalError, InterfaceError):  # the database is away for all of them
            raise
        except Exception:
            log.exception("run %s: it could not be looked at; trying again", run.pk)


def _is_rebooted(run: Run, boots: dict[str, str]) -> bool:
    """True where the run's host has started anew since it was claimed: nothing of the run can be left there."""
    now = boots.get(run.worker_host)
    return bool(now and run.worker_boot and now != run.worker_boot)


def _is_process_gone(run: Run) -> bool:
    """True where the supervisor ran on this host and its process no longer exists."""
    if run.worker_host != host_name() or not run.worker_pid or run.worker_started is None:
        return False
    started = process_start(run.worker_pid)
    return started is None or abs(started - run.worker_started) > 2
