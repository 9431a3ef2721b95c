"""The settings of a run launched again: as a request to change and to send, and as a retry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from hacrl_web.accounts.models import Role, User
from hacrl_web.accounts.roles.projects import require
from hacrl_web.registry.agent_groups.agent_changes import KEY
from hacrl_web.registry.benchmarks.training_sets import (
    as_requested,
    deleted_benchmarks,
    evaluations_as_requested,
    paths_of,
)
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.launch.check import with_reward_names
from hacrl_web.runs.launch.create import create_run
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.launch.rows import changed_models
from hacrl_web.runs.models import Run, Trial
from hacrl_web.runs.run.cautions import confirmed_codes
from hacrl_web.runs.storage.run_files import files_removal
from hacrl_web.runs.storage.stored_spec import stored_spec
from hacrl_web.web.errors import FieldError
from hacrl_web.web.page_query import uuid_or_none
from workers.contract.spec.run import SECTIONS, RunSpec


def request_of(user: User, run: Run) -> dict[str, Any]:
    """The request that launches a run again, as POST /runs takes it. What it used and is deleted is null.

    `confirm`: the cautions that the run confirmed; those of a draft are still open.
    """
    spec = stored_spec(run)
    values = spec.model_dump(mode="json")
    sections = {name: values[name] for name in SECTIONS}
    benchmarks = Benchmark.objects.visible_to(user).filter(train_path__in=paths_of(spec))
    sections["evaluation"]["benchmarks"] = evaluations_as_requested(sections["evaluation"]["benchmarks"], benchmarks)
    sections["training"]["benchmarks"] = as_requested(sections["training"]["benchmarks"], benchmarks)
    sections["rewards"] = with_reward_names(sections["rewards"])
    return {
        "name": run.name,
        "group": run.group_id,
        "benchmark": run.benchmark_id,
        **({KEY: run.agent_changes} if run.agent_changes else {}),
        "seed": spec.seed,
        **sections,
        "confirm": confirmed_codes(run, spec),
        "cloned_from": str(run.pk),
    }


def cannot_repeat(run: Run) -> list[FieldError]:
    """Why the settings of a run cannot be launched again: a benchmark was deleted, or a model has changed.

    Those of an imported run name files of another machine, which nobody has checked here.
    """
    if run.is_imported:
        message = f"{run.name} was imported: its settings name files of another machine. Clone it to train here."
        return [FieldError("imported", message, None)]
    return (changed_models(run.group) if run.group else []) + deleted_rows(run)


def deleted_rows(run: Run) -> list[FieldError]:
    """An error where a benchmark of the run was deleted; lm-evaluation-harness has tasks of its own and needs none."""
    if run.benchmark_id is None and run.spec.get("harness"):
        return []
    own = [] if run.benchmark_id else [("", "benchmark", run.spec.get("data", {}).get("benchmark", ""))]
    if not (deleted := own + deleted_benchmarks(run.spec)):
        return []
    _, kind, name = deleted[0]
    message = f"The {kind} “{name}” of {run.name} was deleted: clone the run and choose another."
    return [FieldError("benchmark_deleted", message, None)]


def hold_rows_of(run: Run) -> None:
    """Lock the benchmarks of a run whose settings are launched again. Error: LaunchError."""
    used = Q(pk=run.benchmark_id) | Q(train_path__in=paths_of(stored_spec(run)))
    rows = Benchmark.objects.select_for_update(of=("self",)).filter(used).order_by("pk")
    if run.benchmark_id not in list(rows.values_list("pk", flat=True)):
        run.benchmark = None
    if errors := deleted_rows(run):
        raise LaunchError(errors)


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


def retry(user: User, run: Run) -> Run:
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
