"""The Celery worker's side of a message: it hands the run's id to the supervisor, without logic of its own."""

from __future__ import annotations

import mmap
from typing import Any
from uuid import UUID

from celery import signals

from hacrl_web.celery import app
from hacrl_web.runs import worker_queue
from hacrl_web.runs.worker import supervisor
from hacrl_web.runs.worker.hosts import HeartbeatThread, data_folder_id

# One byte shared by the worker's main process and the pool child that it forks: 1 once the worker shuts down. Celery
# lets a running task finish then, and does not notify it.
_shutting_down = mmap.mmap(-1, 1)


@signals.celeryd_after_setup.connect
def _consume_queue_of_folder(instance: Any, **_: Any) -> None:
    instance.app.amqp.queues.select_add(worker_queue.queue_of(data_folder_id()))


@signals.worker_ready.connect
def _start_heartbeat(**_: Any) -> None:
    HeartbeatThread().start()


@signals.worker_shutting_down.connect
def _note_shutdown(**_: Any) -> None:
    _shutting_down[0] = 1


@app.task(name=worker_queue.TASK_NAME, acks_late=False, ignore_result=True)
def train(run_id: str) -> None:
    """Claim a run and supervise it to its end, or drop the message."""
    supervisor.supervise(UUID(run_id), is_shutting_down=lambda: _shutting_down[0] == 1)
