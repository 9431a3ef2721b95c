"""A launch request, checked: the settings of each of its runs and the rows that it names. Nothing is written here.

A run is a sweep of one variant and one seed. All errors are collected, each with the dotted path of its field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hacrl_web.accounts.models import User
from hacrl_web.registry.agent_groups.agent_changes import Changes
from hacrl_web.registry.benchmarks.training_sets import as_requested
from hacrl_web.runs.launch.check import check_spec, with_reward_names
from hacrl_web.runs.launch.presets import with_preset
from hacrl_web.runs.launch.rows import KEYS, RequestRows, find_rows, with_further_changes
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.runs.run.cautions import launch_cautions
from hacrl_web.runs.storage.stored_spec import stored_spec
from hacrl_web.runs.variants.grid import Variant
from hacrl_web.runs.variants.parts import (
    SEARCH,
    SWEEP_KEYS,
    SweepParts,
    search_problems,
    sweep_parts,
    trial_variants,
    variants_of,
)
from hacrl_web.runs.variants.points import Point
from hacrl_web.runs.variants.search_settings import SearchSettings
from hacrl_web.runs.variants.varied import owner_problems
from hacrl_web.web.errors import MAX_ERRORS, FieldError, FieldErrors
from workers.algorithms.registry import own_settings
from workers.contract.spec import teaching
from workers.contract.spec.algorithm import DEFAULT
from workers.contract.spec.run import SECTIONS, RunSpec


class LaunchError(FieldErrors):
    """A launch request that is refused."""


class PlannedRun(NamedTuple):
    """One run of a request. variant: None for a run of no sweep.  changes: of its agents, varied ones included."""

    variant: Variant | None
    spec: RunSpec
    changes: Changes

    @property
    def label(self) -> str:
        """Its row in the sweep."""
        return self.variant.label if self.variant else ""


@dataclass(frozen=True)
class LaunchPlan:
    """A checked request. runs: ordered by seed first, so that a running sweep has all variants of its first seeds.

    search: how the trials get their values. `runs` are then points drawn at random, for estimates, and `probes` the
    ends of its ranges, which were checked.
    """

    request: dict[str, Any]  # normalized, of a sweep
    rows: RequestRows
    runs: list[PlannedRun]
    search: SearchSettings | None = None
    probes: list[PlannedRun] = field(default_factory=list)

    @property
    def specs(self) -> list[RunSpec]:
        return [run.spec for run in self.runs]

    @property
    def checked(self) -> list[RunSpec]:
        """Its runs; of a search, the ends of its ranges."""
        return [run.spec for run in self.probes] or self.specs

    @property
    def digest(self) -> str:
        """SHA-256 over the settings of all runs, those of agents and benchmarks included."""
        return hashlib.sha256("\n".join(spec.model_dump_json() for spec in self.checked).encode()).hexdigest()

    @property
    def cautions(self) -> list[FieldError]:
        """Those of all its runs, each once: they are confirmed when a draft is queued."""
        models = [agent.model for agent in self.rows.agents]
        cautions = {caution.code: caution for spec in self.checked for caution in launch_cautions(spec, models)}
        return [FieldError(caution.code, caution.message, caution.field) for caution in cautions.values()]

    def require_teaching(self) -> None:
        """Error: LaunchError, if no rollout of one of its runs can have weight; every reason once."""
        errors: dict[tuple[str, str], FieldError] = {}
        for run in self.probes or self.runs:
            for path, why in teaching.blockers(run.spec).items():
                of_run = f"{run.label}: {why}." if run.label else f"{why[0].upper()}{why[1:]}."
                errors.setdefault((path, why), FieldError("teaches_nothing", of_run, path))
        if errors:
            raise LaunchError(list(errors.values())[:MAX_ERRORS])

    def is_of(self, draft: Run | Sweep) -> bool:
        """Whether it has the settings that a draft was saved with."""
        if isinstance(draft, Sweep):
            return self.digest == draft.draft_digest
        return self.specs == [stored_spec(draft)]


def plan_of(user: User, request: Mapping[str, Any], kind: type[Run | Sweep]) -> LaunchPlan:
    """The plan of a request for a run or for a sweep. Error: LaunchError."""
    errors: list[FieldError] = []
    request = with_preset(request, errors, is_sweep=kind is Sweep)
    if kind is Run:
        run, rows = checked_run(user, request, errors)
        if errors or run is None:
            raise LaunchError(errors)
        return LaunchPlan({}, rows, [run])
    parts = sweep_parts(request, errors)
    variants = variants_of(parts, errors) if isinstance(parts.base, Mapping) and not errors else []
    shared, rows = _shared_by_all(user, request, errors)
    errors += _idle_weight(parts.fields, rows)
    errors += owner_problems(parts.fields, rows.agent_names, request.get("rewards"))
    # With errors in the lists, a run of the default shows the errors of the other settings.
    runs = [(seed, variant) for seed in parts.seeds for variant in variants] or [(0, Variant(DEFAULT))]
    planned = [run for seed, variant in runs if (run := _planned(parts, shared, rows, seed, variant, errors))]
    if any(run.spec.is_evaluation_only for run in planned):
        message = "A sweep compares trained agents: at least 1 step is needed."
        errors.append(FieldError("no_training", message, "training.steps"))
    specs = [run.spec for run in planned]
    errors += search_problems(parts.search, rows.agent_names, specs) if parts.search else _repeated_runs(planned)
    if errors:
        raise LaunchError(errors[:MAX_ERRORS])
    normalized = _normalized(parts, planned, rows)
    if parts.search is None:
        return LaunchPlan(normalized, rows, planned)
    trials = trial_variants(parts.algorithms[0], parts.search)
    draws = [_planned(parts, shared, rows, parts.seeds[0], trial, []) for trial in trials]
    return LaunchPlan(normalized, rows, [run for run in draws if run] or planned[:1], parts.search, planned)


def checked_run(
    user: User, request: Mapping[str, Any], errors: list[FieldError]
) -> tuple[PlannedRun | None, RequestRows]:
    """A run of no sweep; None where RunSpec refuses its settings. All errors are added to `errors`."""
    rows = find_rows(user, request, errors)
    spec = check_spec(request, rows, errors)
    return None if spec is None else PlannedRun(None, spec, rows.changes), rows


def plan_trial(user: User, request: Mapping[str, Any], number: int, point: Point) -> tuple[PlannedRun, RequestRows]:
    """The run of one trial of a stored search. Error: LaunchError; its `status` is 409 where no trial is possible."""
    errors: list[FieldError] = []
    shared, rows = _shared_by_all(user, request, errors)
    if errors:
        raise LaunchError(errors, status=409)
    parts = sweep_parts(request, errors)
    errors += owner_problems(parts.fields, rows.agent_names, request.get("rewards"))
    trial = Variant(parts.algorithms[0], point=point, trial=number)
    run = None if errors else _planned(parts, shared, rows, parts.seeds[0], trial, errors)
    if errors or run is None:
        raise LaunchError(errors)
    return run, rows


def _shared_by_all(
    user: User, request: Mapping[str, Any], errors: list[FieldError]
) -> tuple[dict[str, Any], RequestRows]:
    """What all runs of a sweep have alike: the sections of its request, and its rows."""
    shared = {key: value for key, value in request.items() if key not in SWEEP_KEYS}
    return shared, find_rows(user, shared, errors, KEYS - {"cloned_from"})


def _planned(
    parts: SweepParts,
    shared: Mapping[str, Any],
    rows: RequestRows,
    seed: Any,
    variant: Variant,
    errors: list[FieldError],
) -> PlannedRun | None:
    """One run; None where its settings are refused. Errors are added to `errors`, each once."""
    section = parts.base
    if isinstance(section, Mapping):
        section = {**own_settings(variant.algorithm, section), **variant.overrides}
    problems: list[FieldError] = []
    names = rows.agent_names
    own = with_further_changes(rows, variant.agent_changes(names), problems)
    spec = check_spec({**variant.sections(shared), "algorithm": section, "seed": seed}, own, problems)
    moved = dict.fromkeys(replace(one, field=variant.field_of(one.field, names)) for one in problems)
    errors += [error for error in moved if error not in errors]
    return None if spec is None else PlannedRun(variant, spec, own.changes)


def named_request(plan: LaunchPlan) -> dict[str, Any]:
    """The request as a file for `./hacrl launch`: group and benchmarks by name."""
    group, benchmark = plan.rows.pair
    request = {**plan.request, "group": group.name, "benchmark": benchmark.name}
    if plan.rows.further:
        names = [row.name for row in plan.rows.further]
        request["evaluation"] = {**request["evaluation"], "benchmarks": names}
    if sets := plan.rows.training_sets:
        by_pk = {one.benchmark.pk: one.benchmark.name for one in sets}
        entries = [{**one, "benchmark": by_pk[one["benchmark"]]} for one in request["training"]["benchmarks"]]
        request["training"] = {**request["training"], "benchmarks": entries}
    return request


def _idle_weight(fields: Mapping[str, str], rows: RequestRows) -> list[FieldError]:
    """An error where the weight of the run's own benchmark varies, and there is no other."""
    message = "Without further training sets benchmark_weight has no effect, so there is nothing to vary."
    field = fields.get("training.benchmark_weight")
    return [FieldError("unused", message, field)] if field and not rows.training_sets else []


def _repeated_runs(planned: list[PlannedRun]) -> list[FieldError]:
    """Errors for equal runs: an ablation that is also a point of the grid, or the seeds 1 and "01"."""
    errors = []
    labels: dict[str, str] = {}
    for run in planned:
        label = run.label
        key = run.spec.model_dump_json()
        if labels.get(key) == label:
            errors.append(FieldError("repeated", "Each of the seeds may be named once.", "seeds"))
        first = labels.setdefault(key, label)
        if first != label:
            field = "ablations" if run.variant and run.variant.ablation else "algorithms"
            errors.append(FieldError("repeated", f"“{first}” and “{label}” are the same runs.", field))
    return list(dict.fromkeys(errors))


def _normalized(parts: SweepParts, runs: list[PlannedRun], rows: RequestRows) -> dict[str, Any]:
    """The request with the values that RunSpec read, and in the sections only the settings that it has."""
    first = runs[0].spec
    changed = first.model_dump(mode="json", exclude_unset=True)
    varied = {tuple(name.split(".")) for name in parts.fields}
    sections = {
        key: {name: value for name, value in changed[key].items() if (key, name) not in varied}
        for key in SECTIONS
        if key in changed
    }
    if "algorithm" in sections:
        values: dict[str, Any] = {}
        for run in reversed(runs):  # the first that has a setting decides how it is written
            values |= run.spec.algorithm.model_dump(mode="json", include=set(parts.base))
        sections["algorithm"] = {name: values[name] for name in parts.base}
    if "rewards" in sections:
        sections["rewards"] = with_reward_names({"terms": [], **sections["rewards"]})
    if rows.further is not None:  # ids, as in requests
        sections["evaluation"]["benchmarks"] = [benchmark.pk for benchmark in rows.further]
    if sets := rows.training_sets:
        sections["training"]["benchmarks"] = as_requested(
            changed["training"]["benchmarks"], [one.benchmark for one in sets]
        )
    group, benchmark = rows.pair
    models = [agent.model for agent in rows.agents]
    cautions = {caution.code for run in runs for caution in launch_cautions(run.spec, models)}  # others: nothing
    return {
        "name": first.name,
        "group": group.pk,
        "benchmark": benchmark.pk,
        **({"agents": rows.changes} if rows.changes else {}),
        "algorithms": list(parts.algorithms),
        "ablations": list(parts.ablations),
        "seeds": list(dict.fromkeys(run.spec.seed for run in runs)),
        "grid": parts.grid,
        **({SEARCH: parts.search.request} if parts.search else {}),
        "confirm": [code for code in rows.confirmed if code in cautions],
        **sections,
    }
