"""Acts on all runs of a sweep, which were launched to be compared.

Each variant (variants.py) runs on the same seeds, so that differences are paired: all settings but the algorithm's are
the same, and runs with the same seed see the same questions in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.db import transaction
from pydantic import ValidationError

from hacrl_web.accounts.models import User
from hacrl_web.registry.base import values
from hacrl_web.runs.launch.again import cannot_repeat, hold_rows_of, retry
from hacrl_web.runs.launch.create import MAX_NAME, create_in
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Desire, Run, SearchState, State, Sweep, Trial, TrialState
from hacrl_web.runs.storage.stored_spec import stored_spec
from hacrl_web.runs.sweeps.state import SweepLine, SweepState, state_of
from hacrl_web.runs.variants.grid import MAX_SWEEP_RUNS
from hacrl_web.runs.variants.parts import each_once
from hacrl_web.web.errors import FieldError, plain_errors
from workers.contract.spec.run import RunSpec


def _require_launched(sweep: Sweep) -> None:
    """Error: FieldErrors (409) for a draft."""
    if sweep.is_draft:
        message = f"{sweep.name} is a draft: edit or queue it first."
        raise LaunchError.single("is_draft", message, status=409)


def _locked(sweep: Sweep) -> SweepState:
    """The sweep's state, locked until the caller's transaction ends: two presses of a button launch once.

    Error: FieldErrors (409) for a draft.
    """
    _require_launched(Sweep.objects.select_for_update().get(pk=sweep.pk))
    return state_of(sweep)


def add_seeds(user: User, sweep: Sweep, seeds: Any) -> list[Run]:
    """Launch every variant on further seeds with its own settings; existing seeds are left out.

    Error: FieldErrors, and nothing is written.
    """
    errors: list[FieldError] = []
    new_seeds = each_once({"seeds": seeds}, "seeds", errors)
    if errors:
        raise LaunchError(errors)
    with transaction.atomic():
        state = _locked(sweep)
        if sweep.search_state:
            message = "A search has one seed: clone the run of its best trial and launch that on further seeds."
            raise LaunchError.single("is_search", message, "seeds", status=409)
        missing = _missing(state, new_seeds)
        if (num_runs := len(state.current) + len(missing)) > MAX_SWEEP_RUNS:
            message = f"A sweep has at most {MAX_SWEEP_RUNS} runs; this one would have {num_runs}."
            raise LaunchError.single("too_many_runs", message, "seeds")
        if missing and (errors := cannot_repeat(missing[0][0].newest)):  # all runs have the same group and benchmark
            raise LaunchError(errors)
        if missing:
            hold_rows_of(missing[0][0].newest)
        new_runs = [
            create_in(user, sweep, line.label, spec, run.group, run.benchmark, run.agent_changes)
            for line, spec in missing
            for run in [line.newest]
        ]
        sweep.request = {**sweep.request, "seeds": sorted({*state.seeds, *(run.seed for run in new_runs)})}
        sweep.save(update_fields=["request"])
    return new_runs


def _missing(state: SweepState, seeds: list[Any]) -> list[tuple[SweepLine, RunSpec]]:
    """Returns the runs that further seeds add, ordered by seed first. Error: FieldErrors."""
    missing: dict[tuple[str, int], tuple[SweepLine, RunSpec]] = {}
    for seed in seeds:
        for line in state.lines:
            spec = _with_seed(line.newest, seed)
            if spec.seed not in state.seeds or line.cells[state.seeds.index(spec.seed)] is None:
                missing.setdefault((line.label, spec.seed), (line, spec))
    return list(missing.values())


def _with_seed(run: Run, seed: Any) -> RunSpec:
    """The settings of a run under another seed. Error: FieldErrors."""
    settings = stored_spec(run).model_dump(mode="json")
    try:
        return RunSpec.model_validate({**settings, "seed": seed})
    except ValidationError as error:
        errors = plain_errors(error)
        raise LaunchError(replace(one, field="seeds") if one.field == "seed" else one for one in errors) from None


def retry_all(user: User, sweep: Sweep, state: str = State.FAILED) -> list[Run]:
    """Queue a new run, from step 0, for each failed run or, by `state`, for each stopped one. Idempotent.

    Error: FieldErrors, and nothing is written.
    """
    if state not in (State.FAILED, State.STOPPED):
        raise LaunchError.single("invalid", "Must be failed or stopped.", "state")
    with transaction.atomic():
        runs = _locked(sweep).in_state(state)
        pruned = set(Trial.objects.filter(run__in=runs, state=TrialState.PRUNED).values_list("run", flat=True))
        return [retry(user, run) for run in runs if run.pk not in pruned]


def rename_sweep_to(sweep: Sweep, name: object) -> None:
    """Rename a sweep; its runs keep their names. Error: FieldErrors (409 for a draft, whose name is a setting)."""
    checker = values.Checker()
    new = checker.take("name", values.text, name, MAX_NAME)
    checker.finish()
    _require_launched(sweep)
    Sweep.objects.filter(pk=sweep.pk).update(name=new)
    sweep.refresh_from_db()


def stop_all(sweep: Sweep, reason: str) -> list[Run]:
    """Request the end of every run that has not ended, and of a search. Idempotent."""
    _set_search(sweep, [SearchState.SEARCHING, SearchState.PAUSED], SearchState.STOPPED, reason)
    return _request_all(sweep, lambda run: run.can_stop, lambda run: run.request_stop(reason))


def pause_all(sweep: Sweep, reason: str) -> list[Run]:
    """Take waiting runs out of the queue, and pause running ones after their step; a search waits. Idempotent."""
    _set_search(sweep, [SearchState.SEARCHING], SearchState.PAUSED, reason)
    return _request_all(sweep, lambda run: run.can_pause, lambda run: run.request_pause(reason))


def resume_all(sweep: Sweep, reason: str) -> list[Run]:
    """Queue every paused run again, and continue a paused search. Idempotent."""
    _set_search(sweep, [SearchState.PAUSED], SearchState.SEARCHING, "")
    return _request_all(sweep, lambda run: run.desired_state == Desire.PAUSE, lambda run: run.request_resume(reason))


def _set_search(sweep: Sweep, states: list[str], new: str, reason: str) -> None:
    """Set the state of a search, under the dispatcher's lock: a trial that it has just started is among the runs."""
    with transaction.atomic():
        locked = Sweep.objects.select_for_update(of=("self",)).filter(pk=sweep.pk).first()
        if locked is not None and locked.search_state in states:
            Sweep.objects.filter(pk=sweep.pk).update(search_state=new, search_reason=reason)
    sweep.refresh_from_db(fields=["search_state", "search_reason"])


def _request_all(sweep: Sweep, is_affected: Callable[[Run], bool], request: Callable[[Run], object]) -> list[Run]:
    """Request an act of each run; returns the affected ones. Queued runs come first, so that none starts in between."""
    affected = [run for run in state_of(sweep).runs if not run.is_terminal and is_affected(run)]
    affected.sort(key=lambda run: State.values.index(run.state))
    for run in affected:
        request(run)
    return affected
