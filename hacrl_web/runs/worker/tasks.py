"""The Celery side of the doorbell: no logic, it hands the run's id to the supervisor."""

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
# lets a running task end by itself then, and tells it nothing.
_shutting_down = mmap.mmap(-1, 1)


@signals.celeryd_after_setup.connect
def _listen_for_this_folder(instance: Any, **_: Any) -> None:
    instance.app.amqp.queues.select_add(worker_queue.queue_of(data_folder_id()))


@signals.worker_ready.connect
def _beat_for_the_host(**_: Any) -> None:
    HeartbeatThread().start()


@signals.worker_shutting_down.connect
def _tell_the_child(**_: Any) -> None:
    _shutting_down[0] = 1


@app.task(name="hacrl.train", acks_late=False, ignore_result=True)
def train(run_id: str) -> None:
    """Look at a run: claim it and see it through, or drop the message quietly."""
    supervisor.supervise(UUID(run_id), is_shutting_down=lambda: _shutting_down[0] == 1)
