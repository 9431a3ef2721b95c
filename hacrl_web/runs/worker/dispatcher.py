"""The dispatcher keeps the queue moving: it notifies workers of queued runs and requeues runs that lost their worker.

It trusts only its own clock: a run is lost when its heartbeat has not changed for a while in which this process could
read the database. So clock jumps, reboots and an unreachable database lose no run.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q

from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.messages.pubsub import publish_update
from hacrl_web.runs.models import HELD, USER_STOP, Desire, Host, Run, State
from hacrl_web.runs.telemetry.shipper import LeaseLost, Shipper
from hacrl_web.runs.worker.hosts import boot_id, data_folder_id, host_name, pid_namespace, process_start
from workers.contract.trainer_process import RunDirBusy, kill_earlier_attempts, lease_path, lock_run_dir

NOTIFY_EVERY_S = 10.0
NOTIFY_AT_ONCE = 20
LEASE_S = 45.0  # above the 15 s that SQLite may keep a writer waiting
FINISH_S = 1.0  # longest call of finish_lost_run: other runs wait meanwhile
log = logging.getLogger(__name__)


class Dispatcher:
    """`tick` once a second. Every tick is complete in itself, so an error in one does not matter to the next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._notified_at: dict[UUID, float] = {}
        # Run, attempt and heartbeat: when this process first read them.
        self._first_seen: dict[tuple[UUID, int, datetime | None], float] = {}
        self._last_look = clock()

    def tick(self) -> None:
        self.mark_lost_runs()
        self.requeue_lost_runs()
        self.notify_workers()

    def notify_workers(self) -> int:
        """Send messages for queued runs, each at most every NOTIFY_EVERY_S; returns how many.

        A waiting message means that no worker is free, and more would only pile up: so only to an empty queue.
        """
        now = self._now()
        queued = dict(Run.objects.in_queue().values_list("pk", "data_folder")[:500])
        self._notified_at = {pk: at for pk, at in self._notified_at.items() if pk in queued}
        due: dict[str, list[UUID]] = {}  # by the folder that they wait for
        for pk, folder in queued.items():
            if now - self._notified_at.get(pk, -NOTIFY_EVERY_S) >= NOTIFY_EVERY_S:
                due.setdefault(folder, []).append(pk)
        count = 0
        for folder, runs in due.items():
            if worker_queue.waiting(folder) != 0:
                continue
            for pk in runs[:NOTIFY_AT_ONCE]:
                if not worker_queue.notify_worker(pk, folder):
                    return count
                self._notified_at[pk] = now
                count += 1
        return count

    def mark_lost_runs(self) -> None:
        """Mark each held run as lost whose supervisor's process is gone from this host, or whose heartbeat stopped."""
        now = self._now()
        if now - self._last_look > LEASE_S / 3:  # this process slept or could not read: what it missed proves nothing
            self._first_seen.clear()
        self._last_look = now
        try:
            held = {(run.pk, run.attempt, run.heartbeat_at): run for run in Run.objects.filter(state__in=HELD)}
            self._first_seen = {heartbeat: self._first_seen.get(heartbeat, now) for heartbeat in held}
            silent_s = {run.pk: now - self._first_seen[heartbeat] for heartbeat, run in held.items()}
            boots = dict(Host.objects.values_list("name", "boot_id"))
            _each(held.values(), lambda run: _mark_if_lost(run, _boot_of(run, boots), silent_s[run.pk]))
        except (OperationalError, InterfaceError):  # nobody can write a heartbeat either: silence proves nothing
            self._first_seen.clear()
            raise

    def requeue_lost_runs(self) -> None:
        """Requeue lost runs; end those interrupted too often, and idle ones that are to stop."""
        # An idle run that is to stop was lost once, or the process that requested it died before it wrote the end.
        to_stop = Q(state__in=[State.QUEUED, State.PAUSED], desired_state=Desire.STOP)
        to_pause = Q(state=State.QUEUED, desired_state=Desire.PAUSE)
        _each(Run.objects.filter(to_stop | to_pause | Q(state=State.LOST)), _requeue_or_end)
        _each(Run.objects.filter(state=State.PAUSED, desired_state=Desire.RUN), _finish_resume)


def _each(runs: Iterable[Run], function: Callable[[Run], None]) -> None:
    """Call `function` with every run: one that fails, such as by an unreadable folder, does not hold up the others."""
    for run in runs:
        try:
            function(run)
        except (OperationalError, InterfaceError):  # the database is unreachable for all of them
            raise
        except Exception:
            log.exception("run %s could not be checked; trying again", run.pk)


def _mark_if_lost(run: Run, boot: str, silent_s: float) -> None:
    """boot: the boot id of the run's host as last known, or empty."""
    worker_boot = run.worker_boot.partition(" ")[0]
    if boot and worker_boot and boot != worker_boot:  # no process of the run can have survived
        reason = f"host {run.worker_host} was restarted"
    elif _is_process_gone(run):
        reason = f"its worker process on {run.worker_host} is gone"
    elif silent_s > LEASE_S:
        reason = f"no heartbeat from {run.worker_host} for {silent_s:.0f} s"
    else:
        return
    with transaction.atomic():
        # Heartbeats may have waited for the lock that this waits for: the one just seen must still be the last.
        if not Run.objects.select_for_update().filter(pk=run.pk, heartbeat_at=run.heartbeat_at).exists():
            return
        # Only from the attempt just seen: a supervisor that ends the run meanwhile wins.
        is_lost = run.transition_to(State.LOST, reason=reason, attempt=run.attempt)
    if is_lost:
        log.warning("run %s is lost: %s", run.pk, reason)
        publish_update(run.pk)


def _boot_of(run: Run, boots: dict[str, str]) -> str:
    """The boot id of the run's host as last known, or empty. boots: as the hosts wrote them."""
    return boot_id() if _has_our_pids(run) else boots.get(run.worker_host, "")


def _has_our_pids(run: Run) -> bool:
    """Whether the supervisor's pid means the same process here. On this host it does not in another container."""
    return run.worker_host == host_name() and run.worker_boot.partition(" ")[2] == pid_namespace()


def _is_process_gone(run: Run) -> bool:
    """True if the supervisor ran on this host, beside this process, and its process no longer exists."""
    if not _has_our_pids(run) or not run.worker_pid or run.worker_started is None:
        return False
    started = process_start(run.worker_pid)
    return started is None or abs(started - run.worker_started) > 2


def _requeue_or_end(run: Run) -> None:
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


def _finish_resume(run: Run) -> None:
    """Queue a paused run that is to continue: the process that resumed it died halfway."""
    run.transition_to(State.QUEUED, reason="resumed")
    publish_update(run.pk)


def finish_lost_run(run: Run) -> bool:
    """Store the rest of an idle run's spool. False: the run cannot end yet, for there is more or its trainer lives.

    A run that has ended has all its events and no process, which a supervisor that is killed or frozen cannot ensure.
    If the run directory is on another machine, it cannot be read here, and the run may end.
    """
    if run.data_folder != data_folder_id():
        return True
    try:
        lease_path(run.run_dir, run.attempt).unlink(missing_ok=True)  # a trainer behind a prefix ends, or never begins
        lock = lock_run_dir(run.run_dir)
    except FileNotFoundError:
        return True
    except RunDirBusy:
        log.warning("run %s cannot end yet: the trainer of a lost attempt is still alive", run.pk)
        return False
    except OSError as error:
        log.warning("run %s cannot end yet: its directory cannot be locked: %s", run.pk, error)
        return False
    deadline = time.monotonic() + FINISH_S
    try:
        if not kill_earlier_attempts(run.run_dir, FINISH_S):
            log.warning("run %s cannot end yet: a process that its trainer started does not end", run.pk)
            return False
        shipper = Shipper(run.pk, run.run_dir, run.attempt, Run.objects.idle_after)
        while shipper.has_more and time.monotonic() < deadline:
            shipper.ship()
        return not shipper.has_more
    except LeaseLost:  # it is no longer idle
        return False
    finally:
        os.close(lock)
