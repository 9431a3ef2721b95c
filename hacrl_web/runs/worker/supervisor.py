"""One run, from claim to its last state: starts the trainer, ships its events, obeys the user, and cleans up.

It runs in a Celery pool child (or a test's process). The trainer is a process of its own session, so nothing here ever
waits for it; when this process dies, however that happens, the trainer dies by its death pipe.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from hacrl_web.runs.models import USER_STOP, Desire, Drain, Run, State, Worker
from hacrl_web.runs.pubsub import publish_update
from hacrl_web.runs.telemetry.shipper import LeaseLost, Shipper
from hacrl_web.runs.worker.hosts import boot_id, data_folder_id, drain_of, host_name, process_start
from hacrl_web.runs.worker.watchdog import Watchdog
from workers.contract.events import PAUSE_ASKED, Log
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SPOOL_NAME, SpoolWriter
from workers.contract.trainer_log import last_output
from workers.contract.trainer_process import SPEC_NAME, RunDirBusy, TrainerProcess, lock_run_dir, start_trainer

HEARTBEAT_S = 2.0
MAX_TRIES = 20  # runs that another worker was quicker to claim, or whose directory is in use
WATCH_S = 0.5  # how often the user's wish is read
IDLE_S = 0.1  # pause when the spool has nothing new
STOP_GRACE_S = 30.0
SHUTDOWN_PATIENCE_S = 10.0  # for the step under way, so that a deploy costs nothing; then TERM with its grace
DATABASE_PAUSE_S = 2.0
LAST_LINES = 15
log = logging.getLogger(__name__)

# What a trainer needs of our environment; everything else (database, Redis, secrets, hub tokens) stays here.
_ALLOWED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|VIRTUAL_ENV|PYTHON\w*|LD_LIBRARY_PATH|DYLD_\w+|XDG_\w+"
    r"|(CUDA|NVIDIA|NCCL|GLOO|OMP|MKL|OPENBLAS|TORCH|PYTORCH|TRITON|TRANSFORMERS|TOKENIZERS|VLLM|RAY|ROCR|HIP)_?\w*"
    r"|HF_HOME|HF_HUB_(OFFLINE|CACHE)|HF_ENDPOINT|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|(https?|no|HTTPS?|NO)_(proxy|PROXY)"
    r"|HACRL_FAKE_\w+"
)
_SECRET = re.compile(r"TOKEN(?!IZERS)|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE)
_PROXY_LOGIN = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*@", re.IGNORECASE | re.DOTALL)  # user:password@


def trainer_environment() -> dict[str, str]:
    """The trainer's environment: what it needs and no secret."""
    variables = {k: v for k, v in os.environ.items() if _ALLOWED.fullmatch(k) and not _SECRET.search(k)}
    for name in variables:
        if name.lower() in ("http_proxy", "https_proxy"):
            variables[name] = _PROXY_LOGIN.sub(r"\1", variables[name])
    # Nor does it pick up a hub token that lies in a file of HF_HOME.
    return variables | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}


def this_worker() -> Worker:
    """This process, as a claim names it."""
    return Worker(host_name(), os.getpid(), process_start(os.getpid()) or 0.0, data_folder_id(), boot_id())


def supervise(run_id: UUID, *, is_shutting_down: Callable[[], bool] = lambda: False) -> bool:
    """Claim the run that is next and see it through. False where none was to be had: a doubled or old doorbell."""
    if is_shutting_down() or not Run.objects.in_queue().filter(pk=run_id).exists():
        return False
    run = claim_next()
    if run is None:
        return False
    publish_update(run.pk)
    with _term_noted() as was_terminated:
        supervisor = RunSupervisor(run, lambda: is_shutting_down() or was_terminated())
        supervisor.run_to_end()
    publish_update(run.pk)
    return True


def claim_next() -> Run | None:
    """The first run of the queue that this worker can have: bells wait in the broker in the order they were rung."""
    worker = this_worker()
    waiting = Run.objects.in_queue().filter(data_folder__in=["", worker.data_folder]).values_list("pk", flat=True)
    for run_id in waiting[:MAX_TRIES]:
        if not _is_busy(run_id) and (run := Run.objects.claim(run_id, worker)):
            return run
    return None


def _is_busy(run_id: UUID) -> bool:
    """True while a trainer that lost its supervisor's lease still lives in the run directory, or nobody can look."""
    run_dir = Path(settings.RUNS_DIR) / str(run_id)
    try:
        os.close(lock_run_dir(run_dir))
    except FileNotFoundError:
        return False
    except RunDirBusy:
        log.warning("run %s: its directory is still in use", run_id)
        return True
    except OSError as error:  # a disk that is full or away, a folder of somebody else: those behind it can start
        log.warning("run %s: its directory cannot be locked, so it is passed over: %s", run_id, error)
        return True
    return False


@contextlib.contextmanager
def _term_noted() -> Iterator[Callable[[], bool]]:
    """Within: SIGTERM to this process is noted instead of ending it (a deploy that signals the whole group)."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted.is_set  # only a main thread has signal handlers
        return
    before = signal.signal(signal.SIGTERM, lambda *_: noted.set())
    try:
        yield noted.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


class RunSupervisor:
    """One attempt of one run."""

    def __init__(self, run: Run, is_shutting_down: Callable[[], bool]) -> None:
        self.run = run
        self.attempt = run.attempt
        self.host = run.worker_host
        self.is_shutting_down = is_shutting_down
        self.has_started = False  # the trainer's first word was read
        self.is_announced = False  # and the run is called running
        self.finished: dict[str, Any] | None = None  # the trainer's last word
        self.wish: str = Desire.RUN  # of the user, as last read
        self.is_drained_now = False  # of the host
        self.pause_asked = False
        self.shutdown_seen_at: float | None = None
        self.stop_asked_at: float | None = None
        self.parent = os.getppid()
        self.is_orphan = False
        self._next_heartbeat = 0.0
        self._next_watch = 0.0

    def run_to_end(self) -> None:
        """Start the trainer, follow it, and record how it ended. A lost lease ends it without a word."""
        try:
            self._start_and_follow()
        except LeaseLost as lost:
            log.warning("run %s: %s; its trainer was killed", self.run.pk, lost)
        except Exception as error:
            self._failed(error)

    def _start_and_follow(self) -> None:
        try:
            trainer = self._start()
        except RunDirBusy as busy:
            reason = str(busy)
            self._retry_on_db_error(
                lambda: self.run.requeue(reason=reason, attempt=self.attempt, is_interruption=False)
            )
            return
        except (OSError, ValueError) as error:
            log.exception("run %s: the trainer could not be started", self.run.pk)
            reason = f"the trainer could not be started: {error}"
            self._retry_on_db_error(lambda: self._end(State.FAILED, reason))
            return
        try:
            self._follow(trainer)
        finally:
            status = trainer.kill()  # and what is left of its process group
        self._drain()
        self._retry_on_db_error(lambda: self._conclude(status))

    def _failed(self, error: Exception) -> None:
        """This code failed, not the trainer, which is dead by now: the run says so at once and goes on."""
        log.exception("run %s: its supervisor failed", self.run.pk)
        with contextlib.suppress(Exception):  # where this is its last attempt, it ends with the events that can be had
            self._drain()
        reason = f"its supervisor failed: {type(error).__name__}: {error}"
        self._retry_on_db_error(lambda: self.run.requeue(reason=reason, attempt=self.attempt, is_interruption=True))

    def _start(self) -> TrainerProcess:
        run_dir = self.run.run_dir
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec = RunSpec.model_validate(self.run.spec)
        temporary = run_dir / f"{SPEC_NAME}.new"
        temporary.write_text(spec.to_json())
        temporary.replace(run_dir / SPEC_NAME)
        self._mend_spool(run_dir)
        self.shipper = self._retry_on_db_error(lambda: Shipper(self.run.pk, run_dir, self.attempt))
        self.watchdog = Watchdog(run_dir, spec.compute.stall_timeout_s)
        return start_trainer(run_dir, self.attempt, command=settings.TRAINER_COMMAND, environment=trainer_environment())

    def _mend_spool(self, run_dir: Path) -> None:
        """Tell what the spool has lost; after a power cut new events must not take the numbers of stored ones."""
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
                writer.emit(Log(level="warning", message=f"{missing} events were lost from the spool, not from here"))
            writer.close()
        finally:
            os.close(lock)

    def _follow(self, trainer: TrainerProcess) -> None:
        """Until the trainer has ended: ship, beat, obey. Error: LeaseLost."""
        while trainer.poll() is None:
            try:
                is_behind = self._ship()
                self._beat_and_watch()
            except (OperationalError, InterfaceError) as error:
                self._database_failed(error)
                is_behind = False
            self._handle_wish(trainer)
            if self.stop_asked_at is None and self.watchdog.is_hung():
                self.watchdog.dump_stacks(trainer)
                self._ask_stop(trainer)
            if not is_behind:
                time.sleep(IDLE_S)

    def _ship(self) -> bool:
        batch = self.shipper.ship()
        # A shipped record is seen once: only notes in this loop, nothing that could fail and pass over the rest.
        for record in batch.records:
            if record["attempt"] != self.attempt:
                continue  # an earlier attempt's last lines
            self.watchdog.note(record)
            if record["type"] == "started":
                self.has_started = True
            elif record["type"] == "finished":
                self.finished = record
        if self.has_started and not self.is_announced:  # tried again in the next round where the database fails
            self.run.transition_to(State.RUNNING, reason="training", attempt=self.attempt)
            self.is_announced = True
        return batch.is_full

    def _beat_and_watch(self) -> None:
        now = time.monotonic()
        mine = Run.objects.held_by(self.run.pk, self.attempt)
        if now >= self._next_heartbeat:
            if not mine.update(heartbeat_at=timezone.now()):
                raise LeaseLost(f"attempt {self.attempt} is no longer current")
            self.is_drained_now = drain_of(self.host) == Drain.NOW
            self._next_heartbeat = now + HEARTBEAT_S
        if now >= self._next_watch:
            desired = mine.values_list("desired_state", flat=True).first()
            if desired is None:
                raise LeaseLost(f"attempt {self.attempt} is no longer current")
            self.wish = desired
            self._next_watch = now + WATCH_S

    def _handle_wish(self, trainer: TrainerProcess) -> None:
        """Ask the trainer to stop or to pause where somebody wants it; kill it when its grace is over."""
        if os.getppid() != self.parent:  # the worker was killed: its successor must find the devices free
            self.is_orphan = True
            trainer.kill()
        elif self.stop_asked_at is not None:
            if time.monotonic() - self.stop_asked_at > STOP_GRACE_S:
                log.warning("run %s: the trainer did not stop within %g s; killed", self.run.pk, STOP_GRACE_S)
                trainer.kill()
        elif self.wish == Desire.STOP or self._is_patience_over():
            self._ask_stop(trainer)
        elif self.wish == Desire.PAUSE or self.is_drained_now or self.shutdown_seen_at is not None:
            self._ask_pause(trainer)

    def _is_patience_over(self) -> bool:
        """True once a shutdown has waited long enough for the end of the step."""
        if self.shutdown_seen_at is None and self.is_shutting_down():
            self.shutdown_seen_at = time.monotonic()
        return self.shutdown_seen_at is not None and time.monotonic() - self.shutdown_seen_at > SHUTDOWN_PATIENCE_S

    def _ask_stop(self, trainer: TrainerProcess) -> None:
        trainer.request_stop()
        self.stop_asked_at = time.monotonic()

    def _ask_pause(self, trainer: TrainerProcess) -> None:
        if not self.has_started:  # nothing of this attempt is worth a wait
            self._ask_stop(trainer)
        elif not self.pause_asked:
            trainer.request_pause()
            self.pause_asked = True

    def _drain(self) -> None:
        """Ship the rest of the spool, however long the database is away."""
        while self._retry_on_db_error(self.shipper_has_more):
            pass

    def shipper_has_more(self) -> bool:
        """Ship one batch; True while the spool had something."""
        self._ship()
        self._beat_and_watch()
        return self.shipper.has_more

    def _retry_on_db_error(self, act: Callable[[], Any]) -> Any:
        """Do it until the database answers."""
        while True:
            try:
                return act()
            except (OperationalError, InterfaceError) as error:
                self._database_failed(error)

    def _database_failed(self, error: Exception) -> None:
        log.warning("run %s: the database does not answer (%s); trying again", self.run.pk, error)
        if not connection.in_atomic_block:
            connection.close()
        time.sleep(DATABASE_PAUSE_S)

    def _conclude(self, status: int) -> None:
        """Write the state that the trainer's last word, its exit status and the user's wish amount to."""
        outcome = self.finished.get("outcome") if self.finished else None
        reason = str(self.finished.get("reason") or "") if self.finished else ""
        mine = Run.objects.held_by(self.run.pk, self.attempt)
        wishes = mine.values_list("desired_state", "desire_reason").first()
        if wishes is None:
            raise LeaseLost(f"attempt {self.attempt} is no longer current")
        wish, wish_reason = wishes
        was_asked = outcome == "stopped" or reason.startswith(PAUSE_ASKED) or self.stop_asked_at is not None
        if outcome == "completed":
            self._end(State.COMPLETED, reason)
        elif outcome == "failed":  # also where a stop was asked just after: why it failed must not be lost
            self._end(State.FAILED, reason or "the trainer gave no reason")
        elif wish == Desire.STOP:
            stop_reason = wish_reason or USER_STOP
            self._end(State.STOPPED, stop_reason if outcome else f"{stop_reason}; the trainer was killed")
        elif self.watchdog.verdict:
            self._died(status, outcome)
        elif outcome == "paused" and not was_asked:
            self._end(State.PAUSED, reason or "the trainer paused and gave no reason")
        elif wish == Desire.PAUSE and was_asked:
            detail = reason.removeprefix(PAUSE_ASKED) if outcome == "paused" else ""
            self._end(State.PAUSED, wish_reason + detail)
        elif self.is_shutting_down():
            self._requeue("the worker is restarting")
        elif self.is_drained_now:
            self._requeue(f"host {self.host} is drained")
        elif outcome == "paused" or (self.stop_asked_at is not None and not self.is_orphan):
            self._requeue("resumed before it was paused")
        else:
            self._died(status, outcome)

    def _end(self, state: str, reason: str) -> None:
        self.run.transition_to(state, reason=reason, attempt=self.attempt)

    def _requeue(self, reason: str) -> None:
        self.run.requeue(reason=reason, attempt=self.attempt, is_interruption=False)

    def _died(self, status: int, outcome: str | None) -> None:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        reason = f"the trainer {how} without a last word"
        if outcome == "stopped":
            reason = "the trainer was told to stop by something else than this product"
        if self.is_orphan:
            reason = "its worker was killed"
        if outcome == "interrupted" and self.finished:
            reason = str(self.finished.get("reason") or "the trainer was interrupted and gave no reason")
        reason = self.watchdog.verdict or reason
        lines = last_output(self.run.run_dir, LAST_LINES)
        self.run.refresh_from_db()
        text = f"{reason}\n{lines}" if lines else reason
        self.run.requeue(reason=text, attempt=self.attempt, is_interruption=True)
