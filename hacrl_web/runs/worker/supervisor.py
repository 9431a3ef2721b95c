"""The supervisor of one attempt of a run: it starts the trainer, ships its events, passes on what the user wants, and
records how the attempt ended.

It runs in a Celery pool child (or a test's process). The trainer is a process in its own session, so nothing here ever
waits for it; when this process dies, however that happens, the trainer dies by its death pipe, or by its lease.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from hacrl_web.registry.hub_tokens.service import usable_hub_token
from hacrl_web.registry.rewards.service import judge_keys
from hacrl_web.runs.messages.pubsub import publish_update
from hacrl_web.runs.models import PRUNED, USER_STOP, Desire, Drain, Run, State
from hacrl_web.runs.storage.stored_spec import stored_spec
from hacrl_web.runs.telemetry.shipper import LeaseLost, Shipper
from hacrl_web.runs.worker.hosts import drain_of
from hacrl_web.runs.worker.model_download import DownloadFailed, ModelDownload, hub_models
from hacrl_web.runs.worker.trainer_environment import harness_environment, trainer_environment
from hacrl_web.runs.worker.usage import UsageMeter
from hacrl_web.runs.worker.watchdog import Watchdog
from hacrl_web.web.errors import FieldErrors
from workers.contract.events import PAUSE_REQUESTED, Log
from workers.contract.spool import DISK_FULL, SPOOL_NAME, SpoolWriter
from workers.contract.trainer_log import last_output
from workers.contract.trainer_process import (
    DISK_FULL_STATUS,
    SPEC_NAME,
    RunDirBusy,
    TrainerProcess,
    lock_run_dir,
    start_trainer,
)

DISK_FULL_REASON = "disk: it was full when the trainer started or ended; make room, then resume"
HEARTBEAT_S = 2.0
DESIRE_S = 0.5  # how often the desired state is read
IDLE_S = 0.1  # pause when the spool has nothing new
STOP_GRACE_S = 30.0
PRUNED_GRACE_S = 2.0  # nobody continues a pruned trial: the next one shall have its device
SHUTDOWN_PATIENCE_S = 10.0  # for the step under way, so that a deploy costs nothing; then TERM with its grace
DATABASE_PAUSE_S = 2.0
LAST_LINES = 15
ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)


class RunSupervisor:
    """One attempt of one run."""

    def __init__(self, run: Run, is_shutting_down: Callable[[], bool]) -> None:
        self.run = run
        self.attempt = run.attempt
        self.host = run.worker_host
        self.is_shutting_down = is_shutting_down
        self.parent = os.getppid()
        self.is_orphan = False  # the worker was killed
        self.has_started = False  # the trainer's `started` event was read
        self.is_announced = False  # and the run's state is "running"
        self.finished: dict[str, Any] = {}  # the trainer's `finished` event
        self.desired_state: str = Desire.RUN  # as last read
        self.desire_reason = ""
        self.is_drained_now = False  # the host, as last read
        self.shutdown_seen_at: float | None = None
        self.pause_requested = False  # of the trainer
        self.stop_requested_at: float | None = None
        self.reads_cache_alone = False  # the trainer asks no hub
        self.phase = ""  # of its start, in words, as last stored
        self._next_heartbeat = 0.0
        self._next_look = 0.0

    def run_to_end(self) -> None:
        """Start the trainer, follow it, and record how it ended. If the lease is lost, nothing more is written."""
        try:
            self._start_and_follow()
        except LeaseLost as lost:
            log.warning("run %s: %s; its trainer was killed", self.run.pk, lost)
        except Exception as error:
            self._recover(error)

    def _start_and_follow(self) -> None:
        try:
            if not self._download_models():
                self._conclude_unstarted()
                return
            trainer = self._start()
        except RunDirBusy as busy:
            reason = str(busy)
            self._retry_on_db_error(lambda: self._requeue(reason))
            return
        except (DownloadFailed, FieldErrors, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                self._retry_on_db_error(lambda: self._end(State.PAUSED, DISK_FULL_REASON))
                return
            reason = str(error)  # a model, or a key of a judge, that cannot be had
            if not isinstance(error, DownloadFailed | FieldErrors):
                log.exception("run %s: the trainer could not be started", self.run.pk)
                reason = f"the trainer could not be started: {error}"
            self._retry_on_db_error(lambda: self._end(State.FAILED, reason))
            return
        try:
            self._follow(trainer)
        finally:
            status = trainer.kill()  # and what is left of its process group
        self._drain()
        self._retry_on_db_error(lambda: self.usage.write(is_last=True))
        self._retry_on_db_error(lambda: self._conclude(status))

    def _download_models(self) -> bool:
        """Have the hub's models in this host's cache; False if the run is to stop, pause or move before they are.

        Errors: DownloadFailed, LeaseLost, RunDirBusy, OSError, ValueError.
        """
        spec = stored_spec(self.run)
        models = hub_models(spec)
        if not models:
            return True
        try:
            token = self._retry_on_db_error(lambda: usable_hub_token(self.run.owner, self.run.project))
        except FieldErrors as refusal:
            raise DownloadFailed(str(refusal)) from None
        run_dir = self.run.run_dir
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._repair_spool(run_dir)
        shipper = self._retry_on_db_error(lambda: Shipper(self.run.pk, run_dir, self.attempt))
        self.watchdog = Watchdog(run_dir, spec.compute.stall_timeout_s)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, lock_run_dir(run_dir))
            spool = SpoolWriter(run_dir, self.attempt)
            stack.callback(spool.close)
            download = ModelDownload(models, token, run_dir)
            stack.callback(download.end)
            while not download.is_complete:
                for message in download.new_messages():
                    spool.emit(Log(message=message))
                try:
                    shipper.ship()
                    self._show_phase(download.phase)
                    self._keep_lease()
                except (OperationalError, InterfaceError) as error:
                    self._pause_for_database(error)
                self.is_orphan = os.getppid() != self.parent
                has_other_wish = self.desired_state != Desire.RUN or self.is_drained_now
                if has_other_wish or self.is_orphan or self.is_shutting_down():
                    return False
                time.sleep(IDLE_S)
        # A gated model answers no request without a token, not even one about a file that it lacks.
        self.reads_cache_alone = True
        return True

    def _show_phase(self, phase: str) -> None:
        """Store what a starting run waits for, as its reason. Errors: the database's."""
        if phase != self.phase:
            Run.objects.held_by(self.run.pk, self.attempt).filter(state=State.STARTING).update(reason=phase)
            self.phase = phase
            publish_update(self.run.pk)

    def _conclude_unstarted(self) -> None:
        """Conclude an attempt that was told to end during the download of its models."""
        self.stop_requested_at = time.monotonic()
        self.finished = {} if self.is_orphan else {"outcome": "stopped"}
        self._retry_on_db_error(lambda: self._conclude(0))

    def _start(self) -> TrainerProcess:
        """Errors: RunDirBusy, OSError, ValueError, FieldErrors."""
        run_dir = self.run.run_dir
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec = stored_spec(self.run)
        temporary = run_dir / f"{SPEC_NAME}.new"
        temporary.write_text(spec.to_json())
        temporary.replace(run_dir / SPEC_NAME)
        self._repair_spool(run_dir)
        self._retry_on_db_error(lambda: self._show_phase("loading the models"))
        self.shipper = self._retry_on_db_error(lambda: Shipper(self.run.pk, run_dir, self.attempt))
        self.watchdog = Watchdog(run_dir, spec.compute.stall_timeout_s)
        self.usage = UsageMeter(self.run)
        environment = trainer_environment() | (harness_environment() if spec.harness else {})
        # Ray's other machines have caches of their own; the data sets of the harness's tasks come from the hub.
        needs_hub = spec.compute.placement == "ray" or (spec.harness and spec.harness.tasks)
        if self.reads_cache_alone and not needs_hub:
            environment["HF_HUB_OFFLINE"] = "1"
        keys = self._retry_on_db_error(lambda: judge_keys(self.run.project, spec.judge_paths))
        return start_trainer(
            run_dir,
            self.attempt,
            command=settings.TRAINER_COMMAND,
            prefix=settings.TRAINER_PREFIX,
            environment=environment,
            keys=keys,
        )

    def _repair_spool(self, run_dir: Path) -> None:
        """Record what the spool has lost. After a power cut new events must not take the numbers of stored ones."""
        if not self.run.last_seq and not (run_dir / SPOOL_NAME).exists():
            return
        # Before the shipper reads: what the writer cuts off must not lie behind the shipper's offset.
        lock = lock_run_dir(run_dir)
        try:
            writer = SpoolWriter(run_dir, self.attempt)
            missing = self.run.last_seq - writer.seq
            writer.seq = max(writer.seq, self.run.last_seq)
            if writer.damage:
                writer.emit(Log(level="warning", message=writer.damage, incident="damaged file"))
            elif missing > 0:
                message = f"{missing} events were lost from the spool; the database has them"
                writer.emit(Log(level="warning", message=message))
            writer.close()
        finally:
            os.close(lock)

    def _follow(self, trainer: TrainerProcess) -> None:
        """Ship the trainer's events, keep the lease and pass on requests until the trainer ends. Error: LeaseLost."""
        while trainer.poll() is None:
            try:
                is_behind = self._ship()
            except (OperationalError, InterfaceError) as error:
                self._pause_for_database(error)
                is_behind = False
            self._handle_requests(trainer)
            if self.stop_requested_at is None and self.watchdog.is_hung():
                self.watchdog.dump_stacks(trainer)
                self._request_stop(trainer)
            if not is_behind:
                time.sleep(IDLE_S)

    def _ship(self) -> bool:
        """Store the next batch of events and keep the lease; True if there is probably more. Error: LeaseLost."""
        batch = self.shipper.ship()
        # A shipped record is seen once: this loop only takes notes, nothing that could fail and skip the rest.
        for record in batch.records:
            if record["attempt"] != self.attempt:
                continue  # an earlier attempt's last lines
            self.watchdog.note(record)
            if record["type"] == "started":
                self.has_started = True
                self.usage.gpus = record.get("gpus") or 0.0
            elif record["type"] == "finished":
                self.finished = record
        if self.has_started and not self.is_announced:  # tried again in the next round if the database fails
            self.run.transition_to(State.RUNNING, reason="training", attempt=self.attempt)
            self.is_announced = True
        self._keep_lease()
        self.usage.write()
        return batch.is_full

    def _keep_lease(self) -> None:
        """Write the heartbeat; read the desired state and the host's drain, at their intervals. Error: LeaseLost."""
        now = time.monotonic()
        if now >= self._next_heartbeat:
            if not Run.objects.held_by(self.run.pk, self.attempt).update(heartbeat_at=timezone.now()):
                raise LeaseLost(self.attempt)
            self.is_drained_now = drain_of(self.host) == Drain.NOW
            self._next_heartbeat = now + HEARTBEAT_S
        if now >= self._next_look:
            self.desired_state, self.desire_reason = self._read_desire()
            self._next_look = now + DESIRE_S

    def _read_desire(self) -> tuple[str, str]:
        """What the user wants and why. Error: LeaseLost."""
        held = Run.objects.held_by(self.run.pk, self.attempt)
        desire = held.values_list("desired_state", "desire_reason").first()
        if desire is None:
            raise LeaseLost(self.attempt)
        return desire

    def _handle_requests(self, trainer: TrainerProcess) -> None:
        """Request a stop or a pause of the trainer if one is due; kill it when its grace is over."""
        now = time.monotonic()
        if self.shutdown_seen_at is None and self.is_shutting_down():
            self.shutdown_seen_at = now
        is_patience_over = self.shutdown_seen_at is not None and now - self.shutdown_seen_at > SHUTDOWN_PATIENCE_S
        if os.getppid() != self.parent:  # the worker was killed: its successor must find the devices free
            self.is_orphan = True
            trainer.kill()
        elif self.stop_requested_at is not None:
            is_pruned = self.desired_state == Desire.STOP and self.desire_reason.startswith(PRUNED)
            grace_s = PRUNED_GRACE_S if is_pruned else STOP_GRACE_S
            if now - self.stop_requested_at > grace_s:
                log.warning("run %s: the trainer did not stop within %g s; killed", self.run.pk, grace_s)
                trainer.kill()
        elif self.desired_state == Desire.STOP or is_patience_over:
            self._request_stop(trainer)
        elif self.desired_state == Desire.PAUSE or self.is_drained_now or self.shutdown_seen_at is not None:
            self._request_pause(trainer)

    def _request_stop(self, trainer: TrainerProcess) -> None:
        trainer.request_stop()
        self.stop_requested_at = time.monotonic()

    def _request_pause(self, trainer: TrainerProcess) -> None:
        if not self.has_started:  # this attempt has done nothing that is worth waiting for
            self._request_stop(trainer)
        elif not self.pause_requested:
            trainer.request_pause()
            self.pause_requested = True

    def _drain(self) -> None:
        """Ship the rest of the spool, however long the database is unreachable."""
        self._retry_on_db_error(self._ship)
        while self.shipper.has_more:
            self._retry_on_db_error(self._ship)

    def _retry_on_db_error(self, function: Callable[[], ResultT]) -> ResultT:
        """What `function` returns, called until the database answers."""
        while True:
            try:
                return function()
            except (OperationalError, InterfaceError) as error:
                self._pause_for_database(error)

    def _pause_for_database(self, error: Exception) -> None:
        log.warning("run %s: the database does not answer (%s); trying again", self.run.pk, error)
        if not connection.in_atomic_block:
            connection.close()
        time.sleep(DATABASE_PAUSE_S)

    def _conclude(self, status: int) -> None:
        """Write the state that follows from the trainer's last event, its exit status and the desired state."""
        outcome, reason = self.finished.get("outcome"), str(self.finished.get("reason") or "")
        desired_state, desire_reason = self._read_desire()
        was_requested = outcome == "stopped" or reason.startswith(PAUSE_REQUESTED) or self.stop_requested_at is not None
        if outcome == "completed":
            self._end(State.COMPLETED, reason)
        elif outcome == "failed":  # even if a stop was requested just after: the cause of the failure must not be lost
            self._end(State.FAILED, reason or "the trainer gave no reason")
        elif desired_state == Desire.STOP:
            stop_reason = desire_reason or USER_STOP
            self._end(State.STOPPED, stop_reason if outcome else f"{stop_reason}; the trainer was killed")
        elif self.watchdog.reason:
            self._interrupt(self.watchdog.reason)
        elif outcome == "paused" and not was_requested:
            self._end(State.PAUSED, reason or "the trainer paused and gave no reason")
        elif desired_state == Desire.PAUSE and was_requested:
            detail = reason.removeprefix(PAUSE_REQUESTED) if outcome == "paused" else ""
            self._end(State.PAUSED, desire_reason + detail)
        elif self.is_shutting_down():
            self._requeue("the worker is restarting")
        elif self.is_drained_now:
            self._requeue(f"host {self.host} is drained")
        elif outcome == "paused" or (self.stop_requested_at is not None and not self.is_orphan):
            self._requeue("resumed before it was paused")
        elif outcome == "interrupted":
            self._interrupt(reason or "the trainer was interrupted and gave no reason")
        elif self.is_orphan:
            self._interrupt("its worker was killed")
        elif outcome == "stopped":
            self._interrupt("the trainer was stopped from outside this product")
        elif status == DISK_FULL_STATUS:
            self._end(State.PAUSED, DISK_FULL_REASON)
        else:
            how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            self._interrupt(f"the trainer {how} and reported no outcome")

    def _end(self, state: str, reason: str) -> None:
        self.run.transition_to(state, reason=reason, attempt=self.attempt)

    def _requeue(self, reason: str) -> None:
        self.run.requeue(reason=reason, attempt=self.attempt, is_interruption=False)

    def _interrupt(self, reason: str) -> None:
        """Requeue the run with the trainer's last output, and count the interruption."""
        lines = last_output(self.run.run_dir, LAST_LINES)
        self.run.refresh_from_db()
        text = f"{reason}\n{lines}" if lines else reason
        self.run.requeue(reason=text, attempt=self.attempt, is_interruption=True)

    def _recover(self, error: Exception) -> None:
        """Requeue the run after an error of this code; the trainer is dead by now."""
        log.exception("run %s: its supervisor failed", self.run.pk)
        with contextlib.suppress(Exception):  # if this is its last attempt, it ends with as many events as possible
            self._drain()
        reason = f"its supervisor failed: {type(error).__name__}: {error}"
        self._retry_on_db_error(lambda: self.run.requeue(reason=reason, attempt=self.attempt, is_interruption=True))
