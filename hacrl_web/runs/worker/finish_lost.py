"""The last thing before a run ends that nobody holds: what its lost supervisor did not store, and is its trainer gone?

A run that ends has all its events, and no process; a supervisor that is killed or frozen can promise neither.
"""

from __future__ import annotations

import logging
import os
import time

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.shipper import LeaseLost, Shipper
from hacrl_web.runs.worker.hosts import data_folder_id
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

LONGEST_S = 1.0  # of one call: the dispatcher has other runs to look at
log = logging.getLogger(__name__)


def finish_lost_run(run: Run) -> bool:
    """Store the rest of an idle run's spool. False: not yet, for there is more of it or a trainer still lives there.

    Where the run directory is on another machine, nobody here can look, and the run may end.
    """
    if run.data_folder != data_folder_id():
        return True
    try:
        lock = lock_run_dir(run.run_dir)
    except FileNotFoundError:
        return True
    except RunDirBusy:
        log.warning("run %s cannot end yet: a trainer that lost its supervisor's lease still lives", run.pk)
        return False
    except OSError as error:
        log.warning("run %s cannot end yet: its directory cannot be locked: %s", run.pk, error)
        return False
    try:
        shipper = Shipper(run.pk, run.run_dir, run.attempt, Run.objects.left_by)
        deadline = time.monotonic() + LONGEST_S
        while shipper.has_more and time.monotonic() < deadline:
            shipper.ship()
        return not shipper.has_more
    except LeaseLost:  # it is not idle any more
        return False
    finally:
        os.close(lock)
