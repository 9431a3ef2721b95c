"""Archiving runs that have ended, and deleting runs, sweeps and benchmarks for good. Pages and API call this.

Benchmarks are deleted here because the registry does not know which runs need them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import require, require_delete
from hacrl_web.registry.benchmarks.benchmarks import remove_files
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.models import TERMINAL, Run, State, Sweep
from hacrl_web.runs.run_files import lock_conversion
from hacrl_web.web.errors import FieldErrors, listed
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

NAMED_RUNS = 5
INACTIVE = TERMINAL | {State.DRAFT}


def archive(user: Any, run: Run) -> None:
    """Lists leave it out; nothing is lost. Error: FieldErrors (403; 409 before its end)."""
    require(user, run.project, Role.MEMBER)
    _require_ended(run)
    Run.objects.filter(pk=run.pk, archived_at=None).update(archived_at=timezone.now())
    run.refresh_from_db()


def unarchive(user: Any, run: Run) -> None:
    """Error: FieldErrors (403)."""
    require(user, run.project, Role.MEMBER)
    Run.objects.filter(pk=run.pk).update(archived_at=None)
    run.refresh_from_db()


def delete_run(user: Any, run: Run) -> None:
    """The row with all it has recorded, then its run directory, if that is on this host.

    Error: FieldErrors (403; 409 before its end, while its trainer still lives, while another run reads its files, or
    while a GGUF file is made of them).
    """
    _delete(user, [run])


def delete_sweep(user: Any, sweep: Sweep) -> None:
    """The sweep with all its runs. Error: FieldErrors (403, 409) of any of its runs, and nothing is deleted."""
    require_delete(user, sweep)
    if sweep.is_searching:
        raise _in_use(f"{sweep.name} still searches: stop it first.")
    _delete(user, list(sweep.runs.select_related("project")))
    Sweep.objects.filter(pk=sweep.pk, runs=None).delete()


def _delete(user: Any, runs: Sequence[Run]) -> None:
    """All of these runs, or none. Error: FieldErrors."""
    _require_free(user, runs)
    with ExitStack() as locks:
        for run in runs:
            for lock in folder_locks(run):
                locks.callback(os.close, lock)
        with transaction.atomic():
            # Again, with the rows locked: a retry may have begun since.
            ids = [run.pk for run in runs]
            held = Run.objects.select_for_update(of=("self",)).select_related("project").filter(pk__in=ids)
            _require_free(user, list(held))
            Run.objects.filter(pk__in=ids).delete()
        for run in runs:
            shutil.rmtree(run.run_dir, ignore_errors=True)


def _require_free(user: Any, runs: Sequence[Run]) -> None:
    """Error: FieldErrors with the refusals of all of them."""
    if refusals := [refusal for run in runs if (refusal := deletion_refusal(user, run))]:
        raise FieldErrors([error for one in refusals for error in one.errors], refusals[0].status)


def deletion_refusal(user: Any, run: Run) -> FieldErrors | None:
    """The error that deleting the run would raise."""
    try:
        require_delete(user, run)
        _require_ended(run)
        _require_unused(run)
    except FieldErrors as refused:
        return refused
    return None


def _require_ended(run: Run) -> None:
    if run.state not in INACTIVE:
        raise _in_use(f"{run.name} is {run.state}: stop it first, or wait for its end.")


def _require_unused(run: Run) -> None:
    """An evaluation's retry reads the checkpoint that was copied below the first one's run directory."""
    folder = f"{run.run_dir.resolve()}{os.sep}"
    waiting = Run.objects.exclude(state__in=TERMINAL).exclude(pk=run.pk).filter(project=run.project_id)
    readers = [
        other.name
        for other in waiting.only("name", "spec")
        if any(str(agent.get("model", "")).startswith(folder) for agent in other.spec.get("agents", ()))
    ]
    if readers:
        names = listed(readers, NAMED_RUNS)
        raise _in_use(f"{names} read{'s' if len(readers) == 1 else ''} the files of {run.name}: wait for the end.")


def folder_locks(run: Run) -> Iterator[int]:
    """The locks of its run directory, none where there is no such directory here. Error: FieldErrors (409)."""
    if not Path(run.run_dir).is_dir():
        return
    try:
        yield lock_run_dir(run.run_dir)
        yield lock_conversion(run.run_dir)
    except RunDirBusy:
        raise _in_use(f"The trainer of {run.name} still ends: try again in a minute.") from None
    except BlockingIOError:
        text = f"A GGUF file of {run.name} is being made: wait for its end, or remove it on the Checkpoints tab."
        raise _in_use(text) from None
    except OSError as error:
        message = f"The files of {run.name} cannot be reached ({error.strerror}): nothing was deleted."
        raise _in_use(message) from None


@dataclass(frozen=True)
class Loss:
    """What deleting a benchmark loses. num_ended: runs that keep their results but cannot be retried."""

    num_questions: int
    num_bytes: int
    num_ended: int
    needed_by: list[Run]


def deletion_summary(benchmark: Benchmark) -> Loss:
    return Loss(
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
    """Row and files. Error: FieldErrors (409) where a run that has not ended needs them."""
    with transaction.atomic():
        # Locked: a run that is launched meanwhile is seen here, or refused there (launch.hold, launch.hold_rows_of).
        Benchmark.objects.select_for_update(of=("self",)).get(pk=benchmark.pk)
        if runs := _needed_by(benchmark):
            names = listed([run.name for run in runs], NAMED_RUNS)
            is_one = len(runs) == 1
            needing = "1 run that has not ended needs" if is_one else f"{len(runs)} runs that have not ended need"
            raise _in_use(f"{needing} this benchmark: {names}. Stop {'it' if is_one else 'them'} first.")
        transaction.on_commit(lambda: remove_files(benchmark))
        Benchmark.objects.filter(pk=benchmark.pk).delete()


def _in_use(message: str) -> FieldErrors:
    return FieldErrors.single("in_use", message, status=409)
