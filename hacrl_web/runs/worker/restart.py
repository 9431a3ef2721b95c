"""Restarts a worker that takes no messages while its heartbeat goes on, so that a queued run is not left waiting.

Celery's consumer sometimes stays silent after Redis was gone (celery issues 8030 and 10205). The worker's main process
then replaces itself by a fresh one with the same pid, so that it needs nobody who starts it again. Messages are handled
in its pool child; while the child handles one, and above all while it supervises a run, nothing is restarted.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator

import psutil
from celery.worker import state

from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.worker.hosts import data_folder_id

NUM_LOOKS = 2  # in a row; a consumer that works takes a message within milliseconds
KILL_S = 5.0
log = logging.getLogger(__name__)

# Pool children that handle a message lock it shared, the main process that restarts alone. The system frees the lock
# of a process that ends, however it ends.
_lock_file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process


@contextlib.contextmanager
def handled_message() -> Iterator[None]:
    """Keeps this pool child from being killed by a restart."""
    fcntl.lockf(_lock_file, fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.lockf(_lock_file, fcntl.LOCK_UN)


@contextlib.contextmanager
def _idle_children() -> Iterator[bool]:
    """Keeps the pool children from beginning to handle a message. Yields False if one does already."""
    is_idle = True
    try:
        fcntl.lockf(_lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the standard allows both
        is_idle = False
    try:
        yield is_idle
    finally:
        fcntl.lockf(_lock_file, fcntl.LOCK_UN)


class ConsumerCheck:
    """`look` every few seconds in the worker's main process, while it cannot fork."""

    def __init__(self, is_shutting_down: Callable[[], bool]) -> None:
        self.is_shutting_down = is_shutting_down
        self._num_taken = -1
        self._num_silent = 0

    def look(self) -> None:
        """Restart this process if a message waits, the children are idle and none was taken, for NUM_LOOKS looks."""
        num_taken = state.all_total_count[0]
        if num_taken != self._num_taken or self.is_shutting_down() or not _is_message_waiting():
            self._num_taken, self._num_silent = num_taken, 0
            return
        with _idle_children() as is_idle:
            self._num_silent = self._num_silent + 1 if is_idle else 0
            if self._num_silent >= NUM_LOOKS and not self.is_shutting_down():
                log.warning("this worker is idle and takes no message although one waits: restarting it")
                _replace_process()


def _is_message_waiting() -> bool:
    """Whether a message waits in a queue of this worker; False if Redis does not answer."""
    return any(worker_queue.waiting(folder) for folder in ("", data_folder_id()))


def _replace_process() -> None:
    """Start the program of this process anew in its place; its children, which it could not reap then, are killed."""
    children = psutil.Process().children()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, KILL_S)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
