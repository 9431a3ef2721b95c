"""Launching: a checked request becomes a queued run or a draft. Form, API, demo and sweeps all write runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import require
from hacrl_web.registry.benchmarks.training_sets import EVALUATIONS, TRAINING_SETS, paths_of
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.launch.hub_access import require_hub_access
from hacrl_web.runs.launch.plan import (
    LaunchError,
    RequestRows,
    cannot_repeat,
    deleted_rows,
    is_draft,
    plan_run,
)
from hacrl_web.runs.limits.quotas import check_launch
from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.models import Run, State, StatusChange, Trial
from hacrl_web.runs.run_files import files_removal
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.web.page_query import uuid_or_none
from workers.contract.spec.run import RunSpec

EVALUATION_ONLY = "evaluation only"  # in place of the algorithm's name where nothing is trained


def launch(user: Any, request: Mapping[str, Any]) -> Run:
    """Queue a run, or save it as a draft if the request says so. Error: LaunchError, and nothing is written."""
    spec, rows = plan_run(user, request)
    if not is_draft(request):
        require_hub_access(user, rows.project, spec)
    further: dict[str, Any] = {"project": rows.project, "cloned_from": origin_of(user, request)}
    further["agent_changes"] = rows.changes
    with transaction.atomic():
        hold(rows)
        if not is_draft(request):
            return create_run(user, spec, *rows.pair, **further)
        reason = f"saved by {user.get_username()}"
        columns = columns_of(spec, *rows.pair) | further
        run = Run.objects.create(owner=user, state=State.DRAFT, reason=reason, **columns)
        StatusChange.objects.create(run=run, to_state=State.DRAFT, attempt=0, reason=reason)
        return run


def origin_of(user: Any, request: Mapping[str, Any]) -> Run | None:
    """The run that the request clones; None if it was deleted. Error: LaunchError."""
    value = request.get("cloned_from")
    if value in (None, ""):
        return None
    try:
        return Run.objects.visible_to(user).filter(pk=UUID(str(value))).first()
    except ValueError:
        raise LaunchError.single("invalid", "Must be the id of a run.", "cloned_from") from None


def hold(rows: RequestRows) -> None:
    """Lock group and benchmarks until the end of the transaction, so that none is deleted. Error: LaunchError."""
    _lock(rows.group, "group", "This group")
    benchmarks = [("benchmark", rows.benchmark)] if rows.benchmark else []
    benchmarks += [(EVALUATIONS, row) for row in rows.further or ()]
    hold_benchmarks([*benchmarks, *((TRAINING_SETS, one.benchmark) for one in rows.training_sets or ())])


def hold_benchmarks(named_rows: Sequence[tuple[str, Benchmark]]) -> None:
    """The same for benchmarks.  named_rows: with the field of each.  Error: LaunchError."""
    for field, row in sorted(named_rows, key=lambda pair: pair[1].pk):  # in one order: launches do not block each other
        _lock(row, field, "This benchmark" if field == "benchmark" else f"Benchmark {row.name}")


def _lock(row: AgentGroup | Benchmark | None, field: str, name: str) -> None:
    if row and not list(type(row).objects.select_for_update(of=("self",)).filter(pk=row.pk).values_list("pk")):
        raise LaunchError.single("not_found", f"{name} was deleted just now.", field)


def hold_rows_of(run: Run) -> None:
    """The same for a run whose settings are launched again. Error: LaunchError."""
    used = Q(pk=run.benchmark_id) | Q(train_path__in=paths_of(stored_spec(run)))
    rows = Benchmark.objects.select_for_update(of=("self",)).filter(used).order_by("pk")
    if run.benchmark_id not in list(rows.values_list("pk", flat=True)):
        run.benchmark = None
    if errors := deleted_rows(run):
        raise LaunchError(errors)


def columns_of(spec: RunSpec, group: AgentGroup | None, benchmark: Benchmark | None) -> dict[str, Any]:
    """What a run stores of its settings."""
    return {
        "name": spec.name,
        "group": group,
        "benchmark": benchmark,
        "spec": spec.model_dump(mode="json"),
        "algorithm": EVALUATION_ONLY if spec.is_evaluation_only else spec.algorithm.name,
        "seed": spec.seed,
        "total_steps": spec.training.steps,
    }


def create_run(user: Any, spec: RunSpec, group: AgentGroup | None, benchmark: Benchmark | None, **further: Any) -> Run:
    """Write a queued run, within the caller's transaction.

    further: other columns: project (needed), sweep, variant, retry_of ...
    Errors: FieldErrors (403) for a viewer; QuotaReached (409).
    """
    check_launch(further["project"])
    run = Run.objects.create(owner=user, state=State.QUEUED, **columns_of(spec, group, benchmark), **further)
    reason = f"launched as a retry of run {run.retry_of_id}" if run.retry_of_id else "launched"
    if run.start_step:
        reason = f"launched to continue from step {run.start_step} of run {run.cloned_from_id}"
    StatusChange.objects.create(run=run, to_state=State.QUEUED, attempt=0, reason=reason)
    transaction.on_commit(lambda: worker_queue.notify_worker(run.pk))
    return run


def _hold_with_sources(run: Run, spec: RunSpec) -> None:
    """Lock the run, and those in whose folders its agents lie: copies of a checkpoint that was evaluated.

    Error: LaunchError, if retention has removed these, or the run was deleted.
    """
    root = Path(settings.RUNS_DIR).resolve()
    places = [Path(agent.model) for agent in spec.agents]
    sources = {uuid_or_none(place.relative_to(root).parts[0]) for place in places if root in place.parents}
    # no_key: a continuation locks the benchmark, then refers to the run; a retry, which locks both, does not block it.
    held = Run.objects.select_for_update(of=("self",), no_key=True)
    rows = list(held.filter(pk__in={run.pk, *sources} - {None}).order_by("pk"))
    if run.pk not in {row.pk for row in rows}:
        message = f"{run.name} was deleted just now: it cannot be retried."
        raise LaunchError.single("deleted", message, status=409)
    if sentence := next((text for row in rows if row.pk in sources and (text := files_removal(row))), ""):
        raise LaunchError.single("not_found", sentence, status=409)


def retry(user: Any, run: Run) -> Run:
    """Queue a new run of the same settings and seed, from step 0; the old one and its checkpoints stay as they are.

    It takes the old one's place in its sweep's comparison. A retry that has not ended is returned: two clicks make one
    run. Error: FieldErrors, and nothing is written; 403 for a viewer.
    """
    require(user, run.project, Role.MEMBER)
    if not run.is_terminal:
        message = f"The run has not ended ({run.state}): only one that has ended can be retried."
        raise LaunchError.single("not_ended", message, status=409)
    spec = stored_spec(run)
    if errors := cannot_repeat(run):
        raise LaunchError(errors)
    with transaction.atomic():
        _hold_with_sources(run, spec)
        under_way = next((one for one in run.retries.order_by("created_at") if not one.is_terminal), None)
        if under_way is not None:
            return under_way
        hold_rows_of(run)
        further = {"project": run.project, "sweep": run.sweep, "variant": run.variant, "retry_of": run}
        further["agent_changes"] = run.agent_changes
        if any(agent.model.startswith(str(run.run_dir.resolve())) for agent in spec.agents):
            further["data_folder"] = run.data_folder  # an evaluated checkpoint: only that host has the copy
        new = create_run(user, spec, run.group, run.benchmark, **further)
        Trial.objects.follow_retry(run, new)
        return new
