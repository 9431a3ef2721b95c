"""Measures what runs use, for the quotas of their projects: GPUs by time, and the files of their folders."""

from __future__ import annotations

import time

from django.utils import timezone

from hacrl_web.runs.models import HELD, GpuUse, Run
from hacrl_web.runs.storage.run_files import folder_bytes
from hacrl_web.runs.worker.hosts import data_folder_id

GPUS_EVERY_S = 30.0  # of a supervisor that is killed, no more than this is not counted
FILES_EVERY_S = 300.0
UNKNOWN_EVERY_S = 10.0
AT_ONCE = 20


class UsageMeter:
    """Measures what one attempt uses, for its supervisor. gpus: those of its trainer, once it names them."""

    def __init__(self, run: Run) -> None:
        self.run, self.attempt = run, run.attempt
        self.gpus = 0.0
        self.from_at = timezone.now()
        self._next_gpus = 0.0
        self._next_files = time.monotonic() + FILES_EVERY_S

    def write(self, *, is_last: bool = False) -> None:
        """Store what is due. Errors: the database's."""
        now = time.monotonic()
        if self.gpus and (is_last or now >= self._next_gpus):
            values = {"gpus": self.gpus, "until_at": timezone.now()}
            GpuUse.objects.update_or_create(
                run_id=self.run.pk,
                attempt=self.attempt,
                defaults=values,
                create_defaults=values | {"project_id": self.run.project_id, "from_at": self.from_at},
            )
            self._next_gpus = now + GPUS_EVERY_S
        if is_last or now >= self._next_files:
            measure_files(self.run)
            self._next_files = now + FILES_EVERY_S


class UnmeasuredFiles:
    """For the dispatcher: folders of runs of older versions, and of runs whose supervisor was killed."""

    def __init__(self) -> None:
        self._next = 0.0

    def tick(self) -> None:
        if time.monotonic() < self._next:
            return
        here = Run.objects.filter(attempt__gt=0, data_folder=data_folder_id())
        unmeasured = list(here.filter(files_bytes=None).exclude(state__in=HELD)[:AT_ONCE])
        for run in unmeasured:
            measure_files(run)
        if len(unmeasured) < AT_ONCE:
            self._next = time.monotonic() + UNKNOWN_EVERY_S


def measure_files(run: Run) -> None:
    """Store what the files of a run take, in bytes; its folder is on this host."""
    Run.objects.filter(pk=run.pk).update(files_bytes=folder_bytes(str(run.run_dir)) or 0)
