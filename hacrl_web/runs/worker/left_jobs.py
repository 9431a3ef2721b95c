"""Jobs of a scheduler that were left behind: their supervisor died with its launcher, or the scheduler was away.

A worker looks for them, because it has the commands and the rights that the dispatcher may lack.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.utils import timezone

from hacrl_web.runs.models import HELD, TERMINAL, Run
from hacrl_web.runs.worker.hosts import data_folder_id
from workers.contract.cluster.job import CANCEL_S, JOB_NAME, start_cancel
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

RETRY_S = 60.0
RECENT = timedelta(days=7)


class LeftJobs:
    """`look` every few seconds: it waits for nothing. Each job is cancelled by a process, one at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._began_at = 0.0
        self._next_try: dict[UUID, float] = {}
        self._without_job: set[UUID] = set()  # runs that have ended, so that none comes

    def look(self) -> None:
        """Cancel the next job of a run that no supervisor holds. Errors: the database's."""
        if self._process is not None and self._process.poll() is None:
            if self._now() - self._began_at > CANCEL_S:
                self._process.kill()
            return
        self._process = None
        idle = Run.objects.filter(data_folder=data_folder_id(), heartbeat_at__gt=timezone.now() - RECENT)
        for run_id, state in idle.exclude(state__in=HELD).values_list("pk", "state"):
            if run_id in self._without_job or self._now() < self._next_try.get(run_id, 0.0):
                continue
            run_dir = Run(pk=run_id).run_dir
            if (run_dir / JOB_NAME).exists():
                with contextlib.suppress(RunDirBusy, OSError):  # a launcher lives, or the folder is away
                    self._begin(run_id)
                    return
            elif state in TERMINAL:
                self._without_job.add(run_id)

    def _begin(self, run_id: UUID) -> None:
        """Errors: RunDirBusy, OSError."""
        run_dir = Run(pk=run_id).run_dir
        lock = lock_run_dir(run_dir)
        try:
            self._process = start_cancel(run_dir, lock)
        finally:
            os.close(lock)
        self._began_at = self._now()
        self._next_try[run_id] = self._began_at + RETRY_S
