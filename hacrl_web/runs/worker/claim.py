"""The claim: which queued run this worker process takes next."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from uuid import UUID

from django.conf import settings

from hacrl_web.runs.models import Run, Worker
from hacrl_web.runs.worker.hosts import boot_id, data_folder_id, host_name, process_start
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

MAX_TRIES = 20  # runs that another worker claimed first, or whose directory is in use
log = logging.getLogger(__name__)


def this_worker() -> Worker:
    """This process, as a claim names it."""
    return Worker(host_name(), os.getpid(), process_start(os.getpid()) or 0.0, data_folder_id(), boot_id())


def claim_next() -> Run | None:
    """Claim the first run of the queue that this worker can train, whichever run its message named.

    Messages arrive in the order of their sending, which is not the order of the queue.
    """
    worker = this_worker()
    waiting = Run.objects.in_queue().filter(data_folder__in=["", worker.data_folder]).values_list("pk", flat=True)
    for run_id in waiting[:MAX_TRIES]:
        if not _is_busy(run_id) and (run := Run.objects.claim(run_id, worker)):
            return run
    return None


def _is_busy(run_id: UUID) -> bool:
    """True while the trainer of a lost attempt still holds the run directory, or where the lock cannot be checked."""
    try:
        os.close(lock_run_dir(Path(settings.RUNS_DIR) / str(run_id)))
    except FileNotFoundError:
        return False
    except RunDirBusy:
        log.warning("run %s cannot start yet: the trainer of a lost attempt is still alive", run_id)
        return True
    except OSError as error:  # a disk that is full or not mounted, a folder of another user: later runs can start
        log.warning("run %s cannot start yet: its directory cannot be locked: %s", run_id, error)
        return True
    return False
