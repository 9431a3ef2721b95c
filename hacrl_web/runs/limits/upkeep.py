"""The retention of projects: removes the checkpoints of old runs, and deletes runs archived long ago.

A thread of the dispatcher calls it. Each rule is asked again with the run's row locked, before anything is removed. The
row of a run says first that its checkpoints are removed, then they are; so the next round completes what a crash
interrupts. Runs are deleted as users delete them (archive/deletion.py).
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from hacrl_web.accounts.audit.actor import Actor, acting
from hacrl_web.accounts.audit.audit_log import note_change
from hacrl_web.accounts.models import Project
from hacrl_web.runs.archive.deletion import (
    Readers,
    delete_runs,
    folder_locks,
    in_use,
    reader_refusal,
    readers_by_folder,
)
from hacrl_web.runs.limits.settings import RetentionDays
from hacrl_web.runs.models import GENERATED, INACTIVE, TERMINAL, Retention, Run, RunQuerySet, SearchState
from hacrl_web.runs.storage.run_files import folder_bytes, weight_folders
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.usage import measure_files
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.schemas import EVERY_FIELD

EVERY_S = 3600.0  # of each project, and of removals that a crash interrupted
LOOK_EVERY_S = 10.0
BUDGET_S = 0.2
KEEP_TAG = "keep"
SEARCHING = (SearchState.SEARCHING, SearchState.PAUSED)
ACTOR = Actor("upkeep", command="retention")
log = logging.getLogger(__name__)


def runs_with_old_files(project_id: int, days: int | None) -> RunQuerySet:
    """Candidates by their columns alone."""
    if days is None:
        return Run.objects.none()
    runs = Run.objects.filter(state__in=TERMINAL, finished_at__lt=_before(days), files_removed_at=None)
    return _removable(runs.filter(data_folder=data_folder_id()), project_id)


def runs_archived_long_ago(project_id: int, days: int | None) -> RunQuerySet:
    if days is None:
        return Run.objects.none()
    runs = Run.objects.filter(state__in=INACTIVE, archived_at__lt=_before(days))
    return _removable(runs.filter(data_folder__in=["", GENERATED, data_folder_id()]), project_id)


def _removable(runs: RunQuerySet, project_id: int) -> RunQuerySet:
    free = runs.exclude(tags__contains=f",{KEEP_TAG},").exclude(sweep__search_state__in=SEARCHING)
    return free.filter(project=project_id).order_by("finished_at", "pk")


def _before(days: int) -> datetime:
    return timezone.now() - timedelta(days=days)


def _was_imported_since(run: Run, days: int) -> bool:
    """Whether a run was imported less than this number of days ago; it may have ended years before."""
    at = run.origin.get("imported_at")
    try:
        return bool(at) and datetime.fromisoformat(str(at)) > _before(days)
    except (ValueError, TypeError):
        return False


@dataclass
class ExpiryPreview:
    """What would be removed now, of the files on this host. file_runs: runs that only lose checkpoints.

    file_bytes, archived_bytes: all files of these runs, as last measured, so at most this much is freed.
    """

    __pydantic_config__ = EVERY_FIELD

    file_runs: int = 0
    file_bytes: int = 0
    archived_runs: int = 0
    archived_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.file_runs and not self.archived_runs


def preview_of(project: Project, days: RetentionDays) -> ExpiryPreview:
    """What these values would remove now, if no download or conversion is under way. No folder is measured for it."""
    preview, readers, whole = ExpiryPreview(), readers_by_folder(), set()
    brief = ("name", "project", "origin", "files_bytes")
    for run in runs_archived_long_ago(project.pk, days.archived_days).only(*brief).iterator():
        if not reader_refusal(run, readers):
            whole.add(run.pk)
            preview.archived_runs += 1
            preview.archived_bytes += run.files_bytes or 0
    for run in runs_with_old_files(project.pk, days.checkpoint_days).only(*brief).iterator():
        is_new = _was_imported_since(run, days.checkpoint_days or 0)
        if run.pk not in whole and not is_new and not reader_refusal(run, readers) and weight_folders(run.run_dir):
            preview.file_runs += 1
            preview.file_bytes += run.files_bytes or 0
    return preview


def upkeep() -> Callable[[], int]:
    """The acts that the dispatcher calls in each of its rounds."""
    return RetentionUpkeep().tick


class RetentionUpkeep:
    """The job and where it continues: a round of each project every EVERY_S, a few runs in each tick."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._look_at = self._finish_at = 0.0
        self._next_at: dict[int, float] = {}  # by project
        self._jobs: deque[tuple[Callable[[UUID], bool], UUID]] = deque()

    def tick(self) -> int:
        """About BUDGET_S of work, or one run; returns how many runs lost checkpoints or are deleted."""
        began, num_runs = self._now(), 0
        if not self._jobs and began >= self._look_at:
            self._look_at = began + LOOK_EVERY_S
            self._begin_rounds(began)
        while self._jobs and self._now() <= began + BUDGET_S:
            job, run_id = self._jobs.popleft()
            try:
                num_runs += job(run_id)
            except (OperationalError, InterfaceError):  # the database is unreachable for all of them
                self._finish_at = 0.0
                raise
            except Exception:
                self._finish_at = began + LOOK_EVERY_S
                log.exception("retention: run %s was left as it is; trying again", run_id)
        return num_runs

    def _begin_rounds(self, now: float) -> None:
        if now >= self._finish_at:
            self._finish_at = now + EVERY_S
            self._jobs += [(finish_removal, pk) for pk in _with_removed_files()]
        due = [row for row in Retention.objects.all() if now >= self._next_at.get(row.project_id, 0.0)]
        for row in due:
            self._next_at[row.project_id] = now + EVERY_S
            whole = runs_archived_long_ago(row.project_id, row.archived_days)
            self._jobs += [(delete_archived, pk) for pk in whole.values_list("pk", flat=True)]
            old = runs_with_old_files(row.project_id, row.checkpoint_days)
            self._jobs += [(remove_checkpoints, pk) for pk in old.values_list("pk", flat=True)]


def remove_checkpoints(run_id: UUID) -> bool:
    """Remove the weights of a run, if retention still says so; False if it stays. Errors: the database's, OSError."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None or not weight_folders(run.run_dir):
        return False
    with ExitStack() as locks:
        if not _lock_folder(run, locks):
            return False
        num_bytes = sum(folder_bytes(str(folder)) or 0 for folder in weight_folders(run.run_dir))
        with transaction.atomic(), acting(ACTOR):
            # With the row locked: a retry may have begun since.
            row = Run.objects.select_for_update(of=("self",)).filter(pk=run_id).first()
            days = _days_of(row).checkpoint_days if row else None
            if row is None or days is None or _was_imported_since(row, days):
                return False
            if not runs_with_old_files(row.project_id, days).filter(pk=run_id).exists():
                return False
            if reader_refusal(row, readers_by_folder()):
                return False
            # files_bytes: measured again also where this process ends before it does.
            columns = {"files_removed_at": timezone.now(), "files_removed_days": days, "files_bytes": None}
            Run.objects.filter(pk=run_id).update(**columns)
            note_change("remove_checkpoints", row, days=days, bytes=num_bytes)
        _remove_weights(row)
    log.info("retention: run %s lost its checkpoints, %d bytes, after %d days", run_id, num_bytes, days)
    return True


def delete_archived(run_id: UUID) -> bool:
    """Delete an archived run, if retention still says so; False if it is kept. Errors: the database's."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return False
    try:
        with acting(ACTOR):
            deleted = delete_runs([run], _archived_refusal)
    except FieldErrors as error:
        log.info("retention: run %s is kept: %s", run_id, error)
        return False
    if deleted:
        log.info("retention: archived run %s is deleted, about %d bytes", run_id, run.files_bytes or 0)
    return bool(deleted)


def _archived_refusal(run: Run, readers: Readers) -> FieldErrors | None:
    """Why the retention may not remove an archived run, whose row is locked; None if it may."""
    days = _days_of(run).archived_days
    if not runs_archived_long_ago(run.project_id, days).filter(pk=run.pk).exists():
        return in_use(f"{run.name} is no longer one that the retention removes.")
    return reader_refusal(run, readers)


def finish_removal(run_id: UUID) -> bool:
    """Remove what a crash left of checkpoints that are said to be gone. Always False: no run lost any by it."""
    run = Run.objects.filter(pk=run_id).exclude(files_removed_at=None).first()
    if run is not None and weight_folders(run.run_dir):
        with ExitStack() as locks:
            if _lock_folder(run, locks):
                _remove_weights(run)
    return False


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
    except FieldErrors as error:
        log.info("retention: run %s is in use: %s; trying again", run.pk, error)
        return False
    return True


def _remove_weights(run: Run) -> None:
    """Error: OSError; the next round tries again."""
    for folder in weight_folders(run.run_dir):
        shutil.rmtree(folder)
    measure_files(run)
