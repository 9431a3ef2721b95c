"""The doorbell: a Celery message that tells a worker to look at a run. Losing or doubling one does no harm.

Any worker may take a run that has not begun. One that has waits for the data folder with its files, and its message
goes to the workers of that folder alone: another one would take the message and could do nothing for the run.
"""

from __future__ import annotations

from uuid import UUID

import redis
from kombu.exceptions import OperationalError

from hacrl_web.celery import app
from hacrl_web.runs.pubsub import TIMEOUT_S, client, guard

TASK_NAME = "hacrl.train"
_FAST = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, "max_retries": 0}


def queue_of(folder: str) -> str:
    """The queue of messages to the workers of a data folder; empty: to all."""
    default = str(app.conf.task_default_queue)
    return f"{default}.{folder}" if folder else default


def notify_worker(run_id: UUID, folder: str = "") -> bool:
    """Send the message; False where Redis does not answer within a second: the dispatcher rings again.

    folder: the data folder that the run waits for, if any.
    """
    if not guard.is_open():
        return False
    try:
        client().ping()  # Celery's connection tries a frozen Redis several times before it gives up
        with app.connection_for_write(transport_options=_FAST) as connection:
            app.send_task(
                TASK_NAME,
                args=[str(run_id)],
                queue=queue_of(folder),
                connection=connection,
                retry=False,
                ignore_result=True,
            )
    except (OperationalError, redis.RedisError, OSError) as error:
        guard.failed("doorbell", error)
        return False
    guard.succeeded()
    return True


def waiting(folder: str = "") -> int | None:
    """Messages that no worker (of a folder) has taken yet; None where Redis does not answer."""
    if not guard.is_open():
        return None
    try:
        length = client().llen(queue_of(folder))
    except redis.RedisError as error:
        guard.failed("queue length", error)
        return None
    guard.succeeded()
    return int(length)
