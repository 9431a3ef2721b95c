"""Which runs the retention of a project concerns now: those whose checkpoints go, and archived ones that go whole.

Each rule is asked again with the run's row locked, before anything is removed (retention_upkeep.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.utils import timezone

from hacrl_web.accounts.models import Project
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.archive.archive import INACTIVE
from hacrl_web.runs.models import GENERATED, TERMINAL, Run, RunQuerySet, SearchState
from hacrl_web.runs.retention import RetentionDays
from hacrl_web.runs.run_files import folder_bytes, weight_folders
from hacrl_web.runs.worker.hosts import data_folder_id

KEEP_TAG = "keep"
SEARCHING = (SearchState.SEARCHING, SearchState.PAUSED)


@dataclass
class ExpiryPreview:
    """What would go now, of the files on this host. file_runs: runs whose checkpoints go, archived ones not counted."""

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
    """Whether a run of another installation came here less than so many days ago; it may have ended years before."""
    at = run.origin.get("imported_at")
    try:
        return bool(at) and datetime.fromisoformat(str(at)) > _before(days)
    except (ValueError, TypeError):
        return False


def paths_in_use() -> list[str]:
    """Paths below the folder of runs that waiting or training runs, and registered models, read."""
    root = f"{Path(settings.RUNS_DIR).resolve()}{os.sep}"
    specs = Run.objects.exclude(state__in=TERMINAL).values_list("spec", flat=True)
    paths = [str(agent.get("model", "")) for spec in specs.iterator() for agent in spec.get("agents", ())]
    paths += LanguageModel.objects.filter(location__startswith=root).values_list("location", flat=True)
    return [path for path in paths if path.startswith(root)]


def is_read(run: Run, paths: Iterable[str]) -> bool:
    """Whether one of these paths is the run's folder or lies in it."""
    folder = f"{run.run_dir.resolve()}{os.sep}"
    return any(f"{path}{os.sep}".startswith(folder) for path in paths)


def expiry_preview(project: Project, days: RetentionDays) -> ExpiryPreview:
    """What these values would remove now, if no download or conversion is under way."""
    preview, in_use = ExpiryPreview(), paths_in_use()
    whole = set()
    for run in runs_archived_long_ago(project.pk, days.archived_days).iterator():
        if not is_read(run, in_use):
            whole.add(run.pk)
            preview.archived_runs += 1
            preview.archived_bytes += folder_bytes(str(run.run_dir)) or 0
    for run in runs_with_old_files(project.pk, days.checkpoint_days).iterator():
        folders = weight_folders(run.run_dir)
        is_new = was_imported_since(run, days.checkpoint_days or 0)
        if run.pk not in whole and folders and not is_new and not is_read(run, in_use):
            preview.file_runs += 1
            preview.file_bytes += sum(folder_bytes(str(folder)) or 0 for folder in folders)
    return preview
