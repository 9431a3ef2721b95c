"""Which runs the retention of a project concerns now: those that lose their checkpoints, and archived ones.

Each rule is asked again with the run's row locked, before anything is removed (upkeep.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from hacrl_web.accounts.models import Project
from hacrl_web.runs.archive.deletion import reader_refusal, readers_by_folder
from hacrl_web.runs.models import GENERATED, INACTIVE, TERMINAL, Run, RunQuerySet, SearchState
from hacrl_web.runs.retention.settings import RetentionDays
from hacrl_web.runs.run_files import weight_folders
from hacrl_web.runs.worker.hosts import data_folder_id

KEEP_TAG = "keep"
SEARCHING = (SearchState.SEARCHING, SearchState.PAUSED)


@dataclass
class ExpiryPreview:
    """What would be removed now, of the files on this host. file_runs: runs that only lose checkpoints.

    file_bytes, archived_bytes: all files of these runs, as last measured; without checkpoints some are kept.
    """

    file_runs: int = 0
    file_bytes: int = 0
    archived_runs: int = 0
    archived_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.file_runs and not self.archived_runs


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


def was_imported_since(run: Run, days: int) -> bool:
    """Whether a run was imported less than this number of days ago; it may have ended years before."""
    at = run.origin.get("imported_at")
    try:
        return bool(at) and datetime.fromisoformat(str(at)) > _before(days)
    except (ValueError, TypeError):
        return False


def expiry_preview(project: Project, days: RetentionDays) -> ExpiryPreview:
    """What these values would remove now, if no download or conversion is under way. No folder is measured for it."""
    preview, readers = ExpiryPreview(), readers_by_folder()
    whole = set()
    for run in _in_brief(runs_archived_long_ago(project.pk, days.archived_days)):
        if not reader_refusal(run, readers):
            whole.add(run.pk)
            preview.archived_runs += 1
            preview.archived_bytes += run.files_bytes or 0
    for run in _in_brief(runs_with_old_files(project.pk, days.checkpoint_days)):
        is_new = was_imported_since(run, days.checkpoint_days or 0)
        if run.pk not in whole and not is_new and not reader_refusal(run, readers) and weight_folders(run.run_dir):
            preview.file_runs += 1
            preview.file_bytes += run.files_bytes or 0
    return preview


def _in_brief(runs: RunQuerySet) -> Iterator[Run]:
    return runs.only("name", "project", "origin", "files_bytes").iterator()
