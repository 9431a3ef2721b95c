"""The work of a Celery worker: each message makes it claim the next run and supervise it to its end."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from celery import signals

from hacrl_web.celery import app
from hacrl_web.ops.disk_space import full_disk
from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.messages.pubsub import publish_update
from hacrl_web.runs.models import Drain, Run, Worker
from hacrl_web.runs.worker.hosts import (
    HeartbeatThread,
    boot_id,
    data_folder_id,
    drain_of,
    host_name,
    pid_namespace,
    process_start,
)
from hacrl_web.runs.worker.restart import ConsumerCheck, handled_message
from hacrl_web.runs.worker.supervisor import RunSupervisor
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

MAX_TRIES = 20  # runs that another worker claimed first, or whose directory is in use
WAIT_S = 2.0  # between two looks whether this host takes runs again
log = logging.getLogger(__name__)

# One byte shared by the worker's main process and the pool child that it forks: 1 once the worker shuts down. Celery
# lets a running task finish then, and does not notify it.
_shutting_down = mmap.mmap(-1, 1)


def worker_is_ending() -> bool:
    """Whether this worker has begun to end."""
    return _shutting_down[0] == 1


@signals.celeryd_after_setup.connect
def _consume_queue_of_folder(instance: Any, **_: Any) -> None:
    instance.app.amqp.queues.select_add(worker_queue.queue_of(data_folder_id()))


@signals.worker_ready.connect
def _start_heartbeat(**_: Any) -> None:
    HeartbeatThread(ConsumerCheck(worker_is_ending).look).start()


@signals.worker_shutting_down.connect
def _note_shutdown(**_: Any) -> None:
    _shutting_down[0] = 1


@app.task(name=worker_queue.TASK_NAME, acks_late=False, ignore_result=True)
def train(run_id: str) -> None:
    """Claim a run and supervise it to its end, or drop the message."""
    with handled_message():
        _wait_while_closed(UUID(run_id))
        supervise(UUID(run_id), is_shutting_down=worker_is_ending)


def _wait_while_closed(run_id: UUID) -> None:
    """While this host takes no runs, pass the message on to others, and keep this pool child from taking further ones.

    The pool child that waits is busy, and a worker without a free one takes no message.
    """
    if worker_is_ending() or not (reason := _why_closed()):
        return
    folder = Run.objects.in_queue().filter(pk=run_id).values_list("data_folder", flat=True).first()
    if folder is None:
        return
    log.warning("this host takes no runs: %s", reason)
    worker_queue.notify_worker(run_id, folder)
    while not worker_is_ending() and _why_closed():
        time.sleep(WAIT_S)


def _why_closed() -> str:
    """Why this host takes no runs now; empty if it does."""
    return full_disk() or ("" if drain_of(host_name()) == Drain.NO else "it is drained")


def supervise(run_id: UUID, *, is_shutting_down: Callable[[], bool] = lambda: False) -> bool:
    """Claim the next run and supervise it to its end. False if `run_id` no longer waits, or no run can be claimed.

    So an old or a repeated message starts nothing.
    """
    if is_shutting_down() or not Run.objects.in_queue().filter(pk=run_id).exists():
        return False
    run = claim_next()
    if run is None:
        return False
    publish_update(run.pk)
    with _term_noted() as was_terminated:
        RunSupervisor(run, lambda: is_shutting_down() or was_terminated()).run_to_end()
    publish_update(run.pk)
    return True


@contextlib.contextmanager
def _term_noted() -> Iterator[Callable[[], bool]]:
    """Notes a SIGTERM to this process instead of ending it, for a deploy signals the whole group."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted.is_set  # only a main thread has signal handlers
        return
    before = signal.signal(signal.SIGTERM, lambda *_: noted.set())
    try:
        yield noted.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


def this_worker() -> Worker:
    """The name of this process in a claim."""
    pid = os.getpid()
    return Worker(host_name(), pid, process_start(pid) or 0.0, data_folder_id(), boot_id(), pid_namespace())


def claim_next() -> Run | None:
    """Claim the first run of the queue that this worker can train, whichever run its message named.

    Messages arrive in the order of their sending, which is not the order of the queue.
    """
    if sentence := full_disk():
        log.warning("no run starts: %s", sentence)
        return None
    worker = this_worker()
    waiting = Run.objects.startable().filter(data_folder__in=["", worker.data_folder]).values_list("pk", flat=True)
    for run_id in waiting[:MAX_TRIES]:
        if not _is_busy(run_id) and (run := Run.objects.claim(run_id, worker)):
            return run
    return None


def _is_busy(run_id: UUID) -> bool:
    """True while the trainer of a lost attempt still holds the run directory, or if the lock cannot be checked."""
    try:
        os.close(lock_run_dir(Run(pk=run_id).run_dir))
    except FileNotFoundError:
        return False
    except RunDirBusy:
        log.warning("run %s cannot start yet: the trainer of a lost attempt is still alive", run_id)
        return True
    except OSError as error:  # a disk that is full or not mounted, a folder of another user: later runs can start
        log.warning("run %s cannot start yet: its directory cannot be locked: %s", run_id, error)
        return True
    return False
