"""Carries out the retention of projects: removes the checkpoints of old runs, and runs that were archived long ago.

The dispatcher calls it between its ticks. The row of a run says first that its checkpoints are gone, then they go; the
folder of a run that is deleted is renamed within the transaction that deletes its rows. So what a crash leaves behind
is known, and the next round completes it.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from hacrl_web.accounts.actor import Actor, acting
from hacrl_web.accounts.audit_log import note_change
from hacrl_web.runs.archive.archive import folder_locks
from hacrl_web.runs.archive.expiry import (
    is_read,
    paths_in_use,
    runs_archived_long_ago,
    runs_with_old_files,
    was_imported_since,
)
from hacrl_web.runs.models import Retention, Run
from hacrl_web.runs.run_files import folder_bytes, lock_readers_out, weight_folders
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.usage import measure_files
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import uuid_or_none
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

EVERY_S = 3600.0  # of each project, and of what a crash left
LOOK_EVERY_S = 10.0
BUDGET_S = 0.2
DELETED_ENDING = ".deleted"  # of the folder of a run whose rows are deleted
ACTOR = Actor("upkeep", command="retention")
log = logging.getLogger(__name__)


class RetentionUpkeep:
    """The job and where it continues: a round of each project every EVERY_S, a few runs in each tick."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._look_at = self._mend_at = 0.0
        self._next_at: dict[int, float] = {}  # by project
        self._acts: deque[tuple[Callable[[UUID], bool], UUID]] = deque()

    def tick(self) -> int:
        """About BUDGET_S of work, or one run; returns how many runs lost checkpoints or are deleted."""
        began, num_runs = self._now(), 0
        if not self._acts and began >= self._look_at:
            self._look_at = began + LOOK_EVERY_S
            self._begin_rounds(began)
        while self._acts and self._now() <= began + BUDGET_S:
            act, run_id = self._acts.popleft()
            try:
                num_runs += act(run_id)
            except (OperationalError, InterfaceError):  # the database is unreachable for all of them
                self._mend_at = 0.0
                raise
            except Exception:
                self._mend_at = began + LOOK_EVERY_S
                log.exception("retention: run %s was left as it is; trying again", run_id)
        return num_runs

    def _begin_rounds(self, now: float) -> None:
        if now >= self._mend_at:
            self._mend_at = now + EVERY_S
            mend_deletions()
            self._acts += [(finish_removal, pk) for pk in _with_removed_files()]
        due = [row for row in Retention.objects.all() if now >= self._next_at.get(row.project_id, 0.0)]
        for row in due:
            self._next_at[row.project_id] = now + EVERY_S
            whole = runs_archived_long_ago(row.project_id, row.archived_days)
            self._acts += [(delete_archived, pk) for pk in whole.values_list("pk", flat=True)]
            old = runs_with_old_files(row.project_id, row.checkpoint_days)
            self._acts += [(remove_checkpoints, pk) for pk in old.values_list("pk", flat=True)]


def remove_checkpoints(run_id: UUID) -> bool:
    """Remove the weights of a run, if retention still says so; False if it stays. Errors: the database's, OSError."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None or not weight_folders(run.run_dir):
        return False
    with ExitStack() as locks:
        if not _lock_folder(run, locks):
            return False
        with transaction.atomic(), acting(ACTOR):
            # With the row locked: a retry may have begun since.
            row = Run.objects.select_for_update(of=("self",)).filter(pk=run_id).first()
            days = _days_of(row).checkpoint_days if row else None
            if row is None or days is None or was_imported_since(row, days):
                return False
            if not runs_with_old_files(row.project_id, days).filter(pk=run_id).exists() or is_read(row, paths_in_use()):
                return False
            num_bytes = sum(folder_bytes(str(folder)) or 0 for folder in weight_folders(row.run_dir))
            # files_bytes: measured again also where this process ends before it does.
            columns = {"files_removed_at": timezone.now(), "files_removed_days": days, "files_bytes": None}
            Run.objects.filter(pk=run_id).update(**columns)
            note_change("remove_checkpoints", row, days=days, bytes=num_bytes)
        _remove_weights(row)
    log.info("retention: run %s lost its checkpoints, %d bytes, after %d days", run_id, num_bytes, days)
    return True


def delete_archived(run_id: UUID) -> bool:
    """Delete an archived run whole, if retention still says so. False: it stays. Errors: the database's, OSError."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return False
    folder = run.run_dir
    aside = folder.with_name(f"{folder.name}{DELETED_ENDING}")
    with ExitStack() as locks:
        if not _lock_folder(run, locks):
            return False
        num_bytes = folder_bytes(str(folder)) or 0
        with transaction.atomic(), acting(ACTOR):
            row = Run.objects.select_for_update(of=("self",)).filter(pk=run_id).first()
            days = _days_of(row).archived_days if row else None
            if row is None or days is None:
                return False
            if not runs_archived_long_ago(row.project_id, days).filter(pk=run_id).exists():
                return False
            if is_read(row, paths_in_use()):
                return False
            Run.objects.filter(pk=run_id).delete()
            if folder.is_dir():
                folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    log.info("retention: archived run %s is deleted, %d bytes, after %d days", run_id, num_bytes, days)
    return True


def finish_removal(run_id: UUID) -> bool:
    """Remove what a crash left of checkpoints that are said to be gone. Always False: no run lost any by it."""
    run = Run.objects.filter(pk=run_id).exclude(files_removed_at=None).first()
    if run is not None and weight_folders(run.run_dir):
        with ExitStack() as locks:
            if _lock_folder(run, locks):
                _remove_weights(run)
    return False


def mend_deletions() -> None:
    """Complete or undo what a crash interrupted: the folder of a run that is deleted goes, that of another returns."""
    for aside in Path(settings.RUNS_DIR).glob(f"*{DELETED_ENDING}"):
        run_id = uuid_or_none(aside.name.removesuffix(DELETED_ENDING))
        if run_id is None or not aside.is_dir():
            continue
        try:
            lock = lock_run_dir(aside)
        except (RunDirBusy, OSError):  # it is being deleted just now
            continue
        try:
            if not Run.objects.filter(pk=run_id).exists():
                shutil.rmtree(aside, ignore_errors=True)
            elif not Run(pk=run_id).run_dir.exists():
                aside.rename(Run(pk=run_id).run_dir)
        finally:
            os.close(lock)


def _with_removed_files() -> list[UUID]:
    runs = Run.objects.filter(data_folder=data_folder_id()).exclude(files_removed_at=None)
    return list(runs.values_list("pk", flat=True))


def _days_of(run: Run) -> Retention:
    return Retention.objects.filter(project=run.project_id).first() or Retention()


def _lock_folder(run: Run, locks: ExitStack) -> bool:
    """Take all locks of its folder, until `locks` is closed. False while a process works on it, or reads it."""
    try:
        for lock in folder_locks(run):
            locks.callback(os.close, lock)
        if run.run_dir.is_dir():
            locks.callback(os.close, lock_readers_out(run.run_dir))
    except (FieldErrors, OSError) as error:
        log.info("retention: run %s is in use: %s; trying again", run.pk, error)
        return False
    return True


def _remove_weights(run: Run) -> None:
    """Error: OSError; the next round tries again."""
    for folder in weight_folders(run.run_dir):
        shutil.rmtree(folder)
    measure_files(run)
