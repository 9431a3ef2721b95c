"""Archiving runs that have ended, and deleting benchmarks for good. Pages and API call this.

Benchmarks are deleted here because the registry does not know which runs need them. Runs: deletion.py.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from hacrl_web.accounts.models import Role, User
from hacrl_web.accounts.roles.projects import require
from hacrl_web.registry.benchmarks.service import remove_files
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.archive.deletion import in_use
from hacrl_web.runs.models import INACTIVE, TERMINAL, Run
from hacrl_web.web.errors import listed

NAMED_RUNS = 5


def archive(user: User, run: Run) -> None:
    """Archive a run: lists leave it out; nothing is lost. Error: FieldErrors (403; 409 before its end)."""
    require(user, run.project, Role.MEMBER)
    if run.state not in INACTIVE:
        raise in_use(f"{run.name} is {run.state}: stop it first, or wait for its end.")
    Run.objects.filter(pk=run.pk, archived_at=None).update(archived_at=timezone.now())
    run.refresh_from_db()


def unarchive(user: User, run: Run) -> None:
    """Error: FieldErrors (403)."""
    require(user, run.project, Role.MEMBER)
    Run.objects.filter(pk=run.pk).update(archived_at=None)
    run.refresh_from_db()


@dataclass(frozen=True)
class DeletionSummary:
    """What deleting a benchmark loses. num_ended: runs that keep their results but cannot be retried."""

    num_questions: int
    num_bytes: int
    num_ended: int
    needed_by: list[Run]


def deletion_summary(benchmark: Benchmark) -> DeletionSummary:
    return DeletionSummary(
        num_questions=benchmark.num_train + benchmark.num_held_out,
        num_bytes=sum(os.path.getsize(path) for path in benchmark.paths if Path(path).is_file()),
        num_ended=Run.objects.filter(benchmark=benchmark, state__in=TERMINAL).count(),
        needed_by=_needed_by(benchmark),
    )


def _needed_by(benchmark: Benchmark) -> list[Run]:
    """Active runs that read one of its files, as their own or as a further benchmark."""
    paths = [json.dumps(path) for path in benchmark.paths]
    return [
        run
        for run in Run.objects.exclude(state__in=INACTIVE)
        if run.benchmark_id == benchmark.pk or any(path in json.dumps(run.spec) for path in paths)
    ]


def delete_benchmark(benchmark: Benchmark) -> None:
    """Delete a benchmark's row and files. Error: FieldErrors (409) if a run that has not ended needs them."""
    with transaction.atomic():
        # Locked: a run that is launched meanwhile is seen here, or refused there (launch.hold, launch.hold_rows_of).
        Benchmark.objects.select_for_update(of=("self",)).get(pk=benchmark.pk)
        if runs := _needed_by(benchmark):
            names = listed([run.name for run in runs], NAMED_RUNS)
            is_one = len(runs) == 1
            needing = "1 run that has not ended needs" if is_one else f"{len(runs)} runs that have not ended need"
            raise in_use(f"{needing} this benchmark: {names}. Stop {'it' if is_one else 'them'} first.")
        transaction.on_commit(lambda: remove_files(benchmark))
        Benchmark.objects.filter(pk=benchmark.pk).delete()
