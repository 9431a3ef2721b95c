"""Deleting runs and sweeps for good, by users and by the retention of a project.

A deleted run is hidden at once, in one short transaction: `Run.objects` has no row with `deleted_at`. What it leaves,
its folder and its recorded rows, is removed afterwards (leftover_files.py).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from django.conf import settings
from django.db import models, transaction
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import note_deletion
from hacrl_web.accounts.models import User
from hacrl_web.accounts.roles.projects import require_delete
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.live.counts import add_deleted, counts_of
from hacrl_web.runs.models import INACTIVE, RECORDED_TABLES, TERMINAL, Run, Sweep
from hacrl_web.runs.storage.run_files import lock_readers_out
from hacrl_web.web.errors import FieldErrors, listed
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

NAMED_READERS = 5
Readers = dict[str, set[Run | LanguageModel]]


def delete_run(user: User, run: Run) -> None:
    """Delete a run with all that it has recorded, and its run directory, if that is on this host.

    Error: FieldErrors (403; 409 before its end, while its trainer still lives, while another run or a registered model
    reads its files, or while a download, an upload or a conversion does).
    """
    _delete_as(user, [run])


def delete_sweep(user: User, sweep: Sweep) -> None:
    """Delete a sweep with all its runs. Error: FieldErrors (403, 409) of any of its runs, and nothing is deleted."""
    require_delete(user, sweep)
    if sweep.is_searching:
        raise in_use(f"{sweep.name} is still running: stop it first.")
    _delete_as(user, list(sweep.runs.select_related("project")))
    Sweep.objects.filter(pk=sweep.pk, runs=None).delete()


def _delete_as(user: User, runs: Sequence[Run]) -> None:
    def refusal_of(run: Run, readers: Readers) -> FieldErrors | None:
        return deletion_refusal(user, run, readers)

    readers = readers_by_folder()
    _require_none(refusal_of(run, readers) for run in runs)  # before the locks: a run that trains is said to train
    delete_runs(runs, refusal_of)


def delete_runs(runs: Sequence[Run], refusal_of: Callable[[Run, Readers], FieldErrors | None]) -> list[Run]:
    """Delete all of these runs, or none; returns those that were still there.

    refusal_of: asked with the rows locked, for a retry may have begun since. Error: FieldErrors: the refusals of all,
    or (409) of one whose files are in use.
    """
    with ExitStack() as locks:
        for run in runs:
            for lock in folder_locks(run):
                locks.callback(os.close, lock)
        with transaction.atomic():
            rows = Run.objects.select_for_update(of=("self",)).select_related("project").order_by("pk")
            there = list(rows.filter(pk__in=[run.pk for run in runs]))
            readers = readers_by_folder()
            _require_none(refusal_of(run, readers) for run in there)
            hide_runs(there)
    return there


def _require_none(refusals: Iterable[FieldErrors | None]) -> None:
    """Error: FieldErrors with all of them."""
    if all_of_them := [refusal for refusal in refusals if refusal]:
        raise FieldErrors([error for one in all_of_them for error in one.errors], all_of_them[0].status)


def hide_runs(runs: Sequence[Run]) -> None:
    """Take runs out of every list, in a transaction that holds their rows; what monitoring counts of them is kept."""
    counts = counts_of(run.pk for run in runs)
    for run in runs:
        hide_run(run)
    add_deleted(counts)


def hide_run(run: Run) -> None:
    """Take a run out of every list, with its small rows, so that no other row leads to it; its row is locked."""
    for relation in Run._meta.related_objects:
        table = relation.related_model
        if table in RECORDED_TABLES:
            continue
        rows = table._base_manager.filter(**{relation.field.name: run.pk})
        if relation.on_delete is models.SET_NULL:
            rows.update(**{relation.field.name: None})
        else:
            rows.delete()
    note_deletion(run)
    links = dict.fromkeys(("sweep", "group", "benchmark", "retry_of", "cloned_from"))
    Run._base_manager.filter(pk=run.pk).update(deleted_at=timezone.now(), **links)


def deletion_refusal(user: User, run: Run, readers: Readers | None = None) -> FieldErrors | None:
    """The error that deleting the run would raise. readers: `readers_by_folder()`, passed to check several."""
    try:
        require_delete(user, run)
        if run.state not in INACTIVE:
            raise in_use(f"{run.name} is {run.state}: stop it first, or wait for its end.")
    except FieldErrors as refused:
        return refused
    return reader_refusal(run, readers_by_folder() if readers is None else readers)


def readers_by_folder() -> Readers:
    """The runs that wait or train and the registered models that read files of a run, by the name of its folder."""
    root = Path(settings.RUNS_DIR).resolve()
    places: list[tuple[str, Run | LanguageModel]] = [
        (str(agent.get("model", "")), run)
        for run in Run.objects.exclude(state__in=TERMINAL).only("name", "project", "spec").iterator()
        for agent in run.spec.get("agents", ())
    ]
    local_models = LanguageModel.objects.filter(location__startswith=f"{root}{os.sep}").only(
        "name", "project", "location"
    )
    places += [(model.location, model) for model in local_models]
    readers: Readers = defaultdict(set)
    for path, reader in places:
        if root in Path(path).parents:
            readers[Path(path).relative_to(root).parts[0]].add(reader)
    return readers


def reader_refusal(run: Run, readers: Readers) -> FieldErrors | None:
    """The error (409) where another run or a model reads its files, such as the retry of an evaluation."""
    here = readers.get(run.run_dir.name, set()) - {run}
    if not here:
        return None
    others = "others of another project"
    names = sorted({reader.name if reader.project_id == run.project_id else others for reader in here})
    verb = "reads" if len(names) == 1 and others not in names else "read"
    advice = "wait for the end of the runs, and delete the models first"
    return in_use(f"{listed(names, NAMED_READERS)} {verb} the files of {run.name}: {advice}.")


def folder_locks(run: Run) -> Iterator[int]:
    """The locks of its run directory, none where there is no such directory here. Error: FieldErrors (409)."""
    if not Path(run.run_dir).is_dir():
        return
    busy = f"The trainer of {run.name} is still stopping: try again in a minute."
    try:
        yield lock_run_dir(run.run_dir)
        busy = f"A download or an upload reads the checkpoints of {run.name}: wait for its end."
        yield lock_readers_out(run.run_dir)
    except (RunDirBusy, BlockingIOError):
        raise in_use(busy) from None
    except OSError as error:
        message = f"The files of {run.name} cannot be reached ({error.strerror}): nothing was deleted."
        raise in_use(message) from None


def in_use(message: str) -> FieldErrors:
    return FieldErrors.single("in_use", message, status=409)
