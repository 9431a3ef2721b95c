"""Celery messages that notify workers of queued runs. A lost or repeated message does no harm: the row is the job.

Any worker may take a run that has not begun. A run that has begun waits for the data folder with its files, and its
message goes to the workers of that folder alone: another worker would consume the message in vain.
"""

from __future__ import annotations

from uuid import UUID

from hacrl_web.celery import app
from hacrl_web.runs.messages.pubsub import TIMEOUT_S, client, guard

TASK_NAME = "hacrl.train"
_FAST = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, "max_retries": 0}


def queue_of(folder: str) -> str:
    """The queue of messages to the workers of a data folder; empty: to all."""
    default = str(app.conf.task_default_queue)
    return f"{default}.{folder}" if folder else default


def notify_worker(run_id: UUID, folder: str = "") -> bool:
    """Send the message; False if Redis does not answer within a second: the dispatcher sends it again.

    folder: the data folder that the run waits for, if any.
    """
    return send(TASK_NAME, str(run_id), folder=folder)


def send(task: str, *arguments: str, folder: str = "") -> bool:
    """Send a message to a worker, or to one of a data folder; False if Redis does not answer within a second."""

    def send_message() -> bool:
        client().ping()  # Celery's connection tries a frozen Redis several times before it gives up
        with app.connection_for_write(transport_options=_FAST) as connection:
            app.send_task(
                task,
                args=list(arguments),
                queue=queue_of(folder),
                connection=connection,
                retry=False,
                ignore_result=True,
            )
        return True

    return guard.call("message to a worker", send_message) or False


def waiting(folder: str = "") -> int | None:
    """Messages that no worker (of a folder) has taken; None if Redis does not answer."""
    return guard.call("queue length", lambda: int(client().llen(queue_of(folder))))
