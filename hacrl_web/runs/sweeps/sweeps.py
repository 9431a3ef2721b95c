"""Sweeps: runs that are launched to be compared, and what is done to all of them together.

Each variant (variants.py) runs on the same seeds, so that differences are paired: all settings but the algorithm's are
alike, and the runs of one seed are asked the same questions in the same order.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from pydantic import ValidationError

from hacrl_web.registry import values
from hacrl_web.runs.launch.launch import create_run, hold, retry
from hacrl_web.runs.launch.plan import LaunchError, cannot_repeat
from hacrl_web.runs.launch.variants import MAX_SWEEP_RUNS
from hacrl_web.runs.models import Desire, Run, State, Sweep
from hacrl_web.runs.sweeps.plan import each_once, plan_sweep
from hacrl_web.runs.sweeps.state import SweepLine, SweepState, state_of
from hacrl_web.web.errors import FieldError, plain_errors
from workers.contract.spec.run import RunSpec

MAX_NAME = 120


def launch_sweep(user: Any, request: Any) -> Sweep:
    """Queue one run for each variant and seed, all other settings alike. Error: LaunchError, and nothing is written."""
    plan = plan_sweep(user, request)
    with transaction.atomic():
        hold(plan.material)
        sweep = Sweep.objects.create(
            owner=user, project=plan.material.project, name=plan.request["name"], request=plan.request
        )
        for run in plan.runs:
            _create(user, sweep, run.variant.label, run.spec, *plan.material.pair)
    return sweep


def _create(user: Any, sweep: Sweep, label: str, spec: RunSpec, *pair: Any) -> Run:
    """pair: group and benchmark; None of those that are gone."""
    ending = f" {label} seed {spec.seed}"
    named = spec.model_copy(update={"name": sweep.name[: MAX_NAME - len(ending)] + ending})
    return create_run(user, named, *pair, project=sweep.project, sweep=sweep, variant=label)


def _locked(sweep: Sweep) -> SweepState:
    """The sweep as it stands, held until the caller's transaction ends: two presses of a button launch once."""
    Sweep.objects.select_for_update().get(pk=sweep.pk)
    return state_of(sweep)


def add_seeds(user: Any, sweep: Sweep, seeds: Any) -> list[Run]:
    """Launch every variant on further seeds, with the settings it has; what is there already is not launched again.

    Error: LaunchError, and nothing is written.
    """
    errors: list[FieldError] = []
    new_seeds = each_once({"seeds": seeds}, "seeds", errors)
    if errors:
        raise LaunchError(errors)
    with transaction.atomic():
        state = _locked(sweep)
        missing = _missing(state, new_seeds)
        if (num_runs := len(state.current) + len(missing)) > MAX_SWEEP_RUNS:
            message = f"A sweep has at most {MAX_SWEEP_RUNS} runs; this one would have {num_runs}."
            raise LaunchError([FieldError("too_many_runs", message, "seeds")])
        if missing and (errors := cannot_repeat(missing[0][0].newest)):  # all runs have the same group and benchmark
            raise LaunchError(errors)
        newest = [(line.label, spec, line.newest) for line, spec in missing]
        new_runs = [_create(user, sweep, label, spec, run.group, run.benchmark) for label, spec, run in newest]
        sweep.request = {**sweep.request, "seeds": sorted({*state.seeds, *(run.seed for run in new_runs)})}
        sweep.save(update_fields=["request"])
    return new_runs


def _missing(state: SweepState, seeds: list[Any]) -> list[tuple[SweepLine, RunSpec]]:
    """What further seeds would add, seeds outside. Error: LaunchError."""
    there = {(line.label, run.seed) for line in state.lines for run in line.cells if run}
    missing = []
    for seed in seeds:
        for line in state.lines:
            spec = _with_seed(line.newest, seed)
            if (line.label, spec.seed) not in there:
                there.add((line.label, spec.seed))
                missing.append((line, spec))
    return missing


def _with_seed(run: Run, seed: Any) -> RunSpec:
    """The settings of a run under another seed. Error: LaunchError."""
    try:
        return RunSpec.model_validate({**run.spec, "seed": seed})
    except ValidationError as error:
        wrong = [FieldError(e.code, e.message, "seeds" if e.field == "seed" else e.field) for e in plain_errors(error)]
        raise LaunchError(wrong) from None


def retry_all(user: Any, sweep: Sweep, state: str = State.FAILED) -> list[Run]:
    """Queue a new run in place of each that has failed (or was stopped), from step 0. Twice is as good as once.

    Error: LaunchError, and nothing is written.
    """
    if state not in (State.FAILED, State.STOPPED):
        raise LaunchError([FieldError("invalid", "Must be failed or stopped.", "state")])
    with transaction.atomic():
        return [retry(user, run) for run in _locked(sweep).in_state(state)]


def rename(sweep: Sweep, name: object) -> None:
    """Its runs keep their names. Error: FieldErrors."""
    checker = values.Checker()
    new = checker.take("name", values.text, name, MAX_NAME)
    checker.finish()
    Sweep.objects.filter(pk=sweep.pk).update(name=new)
    sweep.refresh_from_db()


def stop_all(sweep: Sweep, reason: str) -> list[Run]:
    """Ask every run that has not ended to stop, those that wait first, so that none starts in between. Idempotent."""
    affected = [run for run in _open_runs(sweep) if run.can_stop]
    for run in affected:
        run.request_stop(reason)
    return affected


def pause_all(sweep: Sweep, reason: str) -> list[Run]:
    """Hold those that wait out of the queue, and pause those that run after their step. Idempotent."""
    affected = [run for run in _open_runs(sweep) if run.can_pause]
    for run in affected:
        run.request_pause(reason)
    return affected


def resume_all(sweep: Sweep, reason: str) -> list[Run]:
    """Queue every paused run again. Idempotent."""
    affected = [run for run in _open_runs(sweep) if run.desired_state == Desire.PAUSE]
    for run in affected:
        run.request_resume(reason)
    return affected


def _open_runs(sweep: Sweep) -> list[Run]:
    """Those that have not ended, in the order of the states: queued ones before running ones."""
    runs = [run for run in state_of(sweep).runs if not run.is_terminal]
    return sorted(runs, key=lambda run: State.values.index(run.state))
