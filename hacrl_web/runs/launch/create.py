"""The row of a new run, and the locks on the rows that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from hacrl_web.accounts.models import User
from hacrl_web.registry.agent_groups.agent_changes import Changes
from hacrl_web.registry.benchmarks.training_sets import EVALUATIONS, TRAINING_SETS
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.launch.rows import RequestRows
from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.models import Run, State, StatusChange, Sweep
from hacrl_web.runs.models.quotas import check_launch
from workers.contract.spec.run import RunSpec

MAX_NAME = 120
EVALUATION_ONLY = "evaluation only"  # in place of the algorithm's name where nothing is trained


def hold(rows: RequestRows) -> None:
    """Lock group and benchmarks until the end of the transaction, so that none is deleted. Error: LaunchError."""
    _lock(rows.group, "group", "This group")
    benchmarks = [("benchmark", rows.benchmark)] if rows.benchmark else []
    benchmarks += [(EVALUATIONS, row) for row in rows.further or ()]
    hold_benchmarks([*benchmarks, *((TRAINING_SETS, one.benchmark) for one in rows.training_sets or ())])


def hold_benchmarks(named_rows: Sequence[tuple[str, Benchmark]]) -> None:
    """Lock benchmarks until the transaction ends. named_rows: (field, benchmark). Error: LaunchError."""
    for field, row in sorted(named_rows, key=lambda pair: pair[1].pk):  # in one order: launches do not block each other
        _lock(row, field, "This benchmark" if field == "benchmark" else f"Benchmark {row.name}")


def _lock(row: AgentGroup | Benchmark | None, field: str, name: str) -> None:
    if row and not list(type(row).objects.select_for_update(of=("self",)).filter(pk=row.pk).values_list("pk")):
        raise LaunchError.single("not_found", f"{name} was deleted just now.", field)


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


def create_run(user: User, spec: RunSpec, group: AgentGroup | None, benchmark: Benchmark | None, **further: Any) -> Run:
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


def create_in(
    user: User,
    sweep: Sweep,
    label: str,
    spec: RunSpec,
    group: AgentGroup | None,
    benchmark: Benchmark | None,
    agent_changes: Changes,
) -> Run:
    """Write a queued run of a sweep, named after the sweep. Errors: as of create_run."""
    ending = f" {label} seed {spec.seed}"
    named = spec.model_copy(update={"name": sweep.name[: MAX_NAME - len(ending)] + ending})
    columns = {"project": sweep.project, "sweep": sweep, "variant": label, "agent_changes": agent_changes}
    return create_run(user, named, group, benchmark, **columns)
