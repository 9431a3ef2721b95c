"""What becomes of runs that have ended: put away, taken back, deleted for good, alone or with all of their sweep.

Pages and the API come here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import require, require_delete
from hacrl_web.runs.models import TERMINAL, Run, State, Sweep
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

NAMED_RUNS = 5
SETTLED = TERMINAL | {State.DRAFT}  # nobody works on it, or will


def archive(user: Any, run: Run) -> None:
    """Lists leave it out; nothing is lost. Errors: FieldErrors (403; 409 before its end)."""
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
    """The row with all it has recorded, then the files below its run directory, where that is on this host.

    Errors: FieldErrors (403; 409 before its end, while its trainer still lives, or while another run reads its files).
    """
    _delete(user, [run])


def delete_sweep(user: Any, sweep: Sweep) -> None:
    """The sweep with all its runs. Errors: FieldErrors (403, 409) as for each of its runs, and nothing is deleted."""
    require_delete(user, sweep)
    _delete(user, list(sweep.runs.select_related("project")))
    Sweep.objects.filter(pk=sweep.pk, runs=None).delete()


def _delete(user: Any, runs: Sequence[Run]) -> None:
    """All of these runs or, with the refusals of each, none."""
    _require_free(user, runs)
    with ExitStack() as locks:
        for run in runs:
            if (lock := _locked(run)) is not None:
                locks.callback(os.close, lock)
        with transaction.atomic():
            # Once more, and by the rows themselves: a retry may have begun since.
            ids = [run.pk for run in runs]
            held = Run.objects.select_for_update(of=("self",)).select_related("project").filter(pk__in=ids)
            _require_free(user, list(held))
            Run.objects.filter(pk__in=ids).delete()
        for run in runs:
            shutil.rmtree(run.run_dir, ignore_errors=True)


def _require_free(user: Any, runs: Sequence[Run]) -> None:
    """Error: FieldErrors with what stands in the way of any of them."""
    refusals = [refusal for run in runs if (refusal := deletion_refusal(user, run))]
    if refusals:
        raise FieldErrors([error for one in refusals for error in one.errors], refusals[0].status)


def deletion_refusal(user: Any, run: Run) -> FieldErrors | None:
    """What a deletion would be refused with."""
    try:
        require_delete(user, run)
        _require_ended(run)
        _require_unused(run)
    except FieldErrors as refused:
        return refused
    return None


def _require_ended(run: Run) -> None:
    if run.state not in SETTLED:
        raise _in_the_way(f"{run.name} is {run.state}: stop it first, or wait for its end.")


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
        names = ", ".join(readers[:NAMED_RUNS])
        raise _in_the_way(f"{names} read{'s' if len(readers) == 1 else ''} the files of {run.name}: wait for the end.")


def _locked(run: Run) -> int | None:
    """The lock of its run directory, None where there is no such directory here. Error: FieldErrors (409)."""
    if not Path(run.run_dir).is_dir():
        return None
    try:
        return lock_run_dir(run.run_dir)
    except RunDirBusy:
        raise _in_the_way(f"The trainer of {run.name} still ends: try again in a minute.") from None
    except OSError as error:
        message = f"The files of {run.name} cannot be reached ({error.strerror}): nothing was deleted."
        raise _in_the_way(message) from None


def _in_the_way(message: str) -> FieldErrors:
    return FieldErrors([FieldError("in_use", message, None)], 409)
