"""A request for a sweep, checked: the settings of each of its runs. Nothing is written here.

All errors are collected, each with the field of the request that it came from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from math import prod
from typing import Any, NamedTuple

from hacrl_web.registry.agent_groups.agent_changes import Changes
from hacrl_web.registry.benchmarks.training_sets import as_requested
from hacrl_web.runs.grids.variants import (
    MAX_LABEL,
    MAX_SWEEP_RUNS,
    Variant,
    ablations,
    expand,
    grid_of,
    idle_ablations,
)
from hacrl_web.runs.grids.varied import owner_problems
from hacrl_web.runs.launch.plan import (
    KEYS,
    SECTIONS,
    LaunchError,
    RequestRows,
    check_spec,
    find_rows,
    with_further_changes,
)
from hacrl_web.runs.launch.presets import with_preset
from hacrl_web.runs.launch.rewards import with_reward_names
from hacrl_web.runs.sweeps.search_plan import (
    other_than_one,
    probe_variants,
    search_problems,
    trial_variants,
    unused_parameters,
)
from hacrl_web.runs.trials.points import Point
from hacrl_web.runs.trials.search_settings import KEY as SEARCH
from hacrl_web.runs.trials.search_settings import SearchSettings, search_of
from hacrl_web.web.errors import MAX_ERRORS, FieldError
from workers.algorithms.registry import algorithms, own_settings, settings_schema
from workers.contract.spec.algorithm import DEFAULT, left_settings, without_idle
from workers.contract.spec.run import RunSpec

SWEEP_KEYS = frozenset({"algorithms", "ablations", "seeds", "grid", SEARCH})


class PlannedRun(NamedTuple):
    """One run of a sweep. changes: of its agents, those that vary included."""

    variant: Variant
    spec: RunSpec
    changes: Changes


@dataclass(frozen=True)
class SweepPlan:
    """A checked request. runs: ordered by seed first, so that a running sweep has all variants of its first seeds."""

    request: dict[str, Any]  # normalized
    rows: RequestRows
    runs: list[PlannedRun]
    # Of a search: how its trials get their values. `runs` are then points drawn at random, for estimates, and `probes`
    # the ends of its ranges, which were checked.
    search: SearchSettings | None = None
    probes: list[PlannedRun] = dataclass_field(default_factory=list)

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
        cautions = {caution.code: caution for spec in self.checked for caution in spec.cautions()}
        return [FieldError(caution.code, caution.message, caution.field) for caution in cautions.values()]


@dataclass(frozen=True)
class SweepParts:
    """The parts of a request that only a sweep has, and the section `algorithm` that all its runs share."""

    algorithms: list[Any]
    ablations: list[str]
    seeds: list[Any]
    grid: dict[str, list[Any]]
    base: Any
    search: SearchSettings | None

    @property
    def fields(self) -> dict[str, str]:
        """Of each setting that varies, the field of the request that has its values."""
        if self.search is not None:
            return {name: f"{SEARCH}.parameters.{name}" for name in self.search.parameters}
        return {name: f"grid.{name}" for name in self.grid}


def plan_sweep(user: Any, request: Mapping[str, Any]) -> SweepPlan:
    """Every run of a sweep, checked. Error: LaunchError."""
    errors: list[FieldError] = []
    request = with_preset(request, errors, is_sweep=True)
    parts = _sweep_parts(request, errors)
    variants = _variants(parts, errors) if isinstance(parts.base, Mapping) and not errors else []
    shared = {key: value for key, value in request.items() if key not in SWEEP_KEYS}
    rows = find_rows(user, shared, errors, KEYS - {"cloned_from"})
    errors += _idle_weight(parts.fields, rows)
    errors += owner_problems(parts.fields, [agent.name for agent in rows.agents], request.get("rewards"))
    # With errors in the lists, a run of the default shows the errors of the other settings.
    runs = [(seed, variant) for seed in parts.seeds for variant in variants] or [(0, Variant(DEFAULT))]
    planned = [run for seed, variant in runs if (run := _planned(parts, shared, rows, seed, variant, errors))]
    if any(run.spec.is_evaluation_only for run in planned):
        message = "A sweep compares trained agents: at least 1 step is needed."
        errors.append(FieldError("no_training", message, "training.steps"))
    errors += (
        _repeated_runs(planned)
        if parts.search is None
        else search_problems(parts.search, rows, [run.spec for run in planned])
    )
    if errors:
        raise LaunchError(errors[:MAX_ERRORS])
    normalized = _normalized(parts, planned, rows)
    if parts.search is None:
        return SweepPlan(normalized, rows, planned)
    variants = trial_variants(parts.algorithms[0], parts.search)
    draws = [_planned(parts, shared, rows, parts.seeds[0], variant, []) for variant in variants]
    return SweepPlan(normalized, rows, [run for run in draws if run] or planned[:1], parts.search, planned)


def plan_trial(user: Any, request: Mapping[str, Any], number: int, point: Point) -> tuple[PlannedRun, RequestRows]:
    """The run of one trial of a stored search. Error: LaunchError; its `status` is 409 where no trial is possible."""
    errors: list[FieldError] = []
    shared = {key: value for key, value in request.items() if key not in SWEEP_KEYS}
    rows = find_rows(user, shared, errors, KEYS - {"cloned_from"})
    if errors:
        raise LaunchError(errors, status=409)
    parts = _sweep_parts(request, errors)
    errors += owner_problems(parts.fields, [agent.name for agent in rows.agents], request.get("rewards"))
    variant = Variant(parts.algorithms[0], point=point, trial=number)
    run = None if errors else _planned(parts, shared, rows, parts.seeds[0], variant, errors)
    if errors or run is None:
        raise LaunchError(errors)
    return run, rows


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
    names = [agent.name for agent in rows.agents]
    own = with_further_changes(rows, variant.agent_changes(names), problems)
    spec = check_spec({**variant.sections(shared), "algorithm": section, "seed": seed}, own, problems)
    moved = dict.fromkeys(replace(one, field=variant.field_of(one.field, names)) for one in problems)
    errors += [error for error in moved if error not in errors]
    return None if spec is None else PlannedRun(variant, spec, own.changes)


def named_request(plan: SweepPlan) -> dict[str, Any]:
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


def _sweep_parts(request: Mapping[str, Any], errors: list[FieldError]) -> SweepParts:
    names = each_once(request, "algorithms", errors, is_needed=not request.get("ablations"))
    removed = each_once(request, "ablations", errors, is_needed=False)
    expected = ", ".join(ablations())
    errors += [
        FieldError("literal_error", f"Must be one of {expected}. You gave {str(key)[:60]!r}.", "ablations")
        for key in removed
        if not isinstance(key, str) or key not in ablations()
    ]
    seeds = each_once(request, "seeds", errors)
    grid = grid_of(request.get("grid", {}), errors)
    base = without_idle({"algorithm": request.get("algorithm", {})})["algorithm"]  # a stored one may be older
    if isinstance(base, str) or (isinstance(base, Mapping) and "name" in base):
        errors.append(FieldError("unknown_key", "A sweep takes its algorithms from “algorithms”.", "algorithm.name"))
    if "seed" in request:
        errors.append(FieldError("unknown_key", "A sweep takes its seeds from “seeds”.", "seed"))
    parts = SweepParts(names, removed, seeds, grid, base, None)
    if SEARCH not in request:
        return parts
    search = search_of(request[SEARCH], errors)
    errors += other_than_one(names, removed, seeds, grid) if search else []
    return replace(parts, search=search)


def each_once(request: Mapping[str, Any], key: str, errors: list[FieldError], *, is_needed: bool = True) -> list[Any]:
    """A list of a request. Errors, also for repeated values, are added to `errors`."""
    values = request.get(key, [])
    if not isinstance(values, list | tuple) or (is_needed and not values):
        errors.append(FieldError("missing", f"Give a list of {key}, at least one.", key))
        return []
    if len(values) > MAX_SWEEP_RUNS:
        errors.append(FieldError("too_long", f"At most {MAX_SWEEP_RUNS} {key} are possible.", key))
        return []
    texts = [str(value) for value in values]
    if len(set(texts)) < len(texts):
        errors.append(FieldError("repeated", f"Each of the {key} may be named once.", key))
    return list(values)


def _variants(parts: SweepParts, errors: list[FieldError]) -> list[Variant]:
    """The rows of the sweep; none with errors."""
    if parts.search is not None:
        algorithm = str(parts.algorithms[0])
        errors += unused_parameters(algorithm, parts.base, parts.search)
        return probe_variants(algorithm, parts.search)
    points = prod(len(values) for values in parts.grid.values())
    if points > MAX_SWEEP_RUNS:  # before they are multiplied out
        message = f"The grid has {points} points; a sweep has at most {MAX_SWEEP_RUNS} runs."
        errors.append(FieldError("too_many_runs", message, f"grid.{next(reversed(parts.grid))}"))
        return []
    variants = expand(parts.algorithms, parts.ablations, parts.grid, parts.base)
    problems = []
    for name in parts.grid:
        if not any(name in variant.point for variant in variants):
            message = f"None of the chosen algorithms uses {name}, so there is nothing to vary."
            problems.append(FieldError("unused", message, f"grid.{name}"))
    used = {name for variant in variants for name in _settings_of(variant.algorithm)}
    messages = {one.name: one.message for one in left_settings({"algorithm": parts.base})}
    for name in parts.base.keys() - used:
        is_known = name in settings_schema()
        message = "None of the chosen algorithms has this setting." if is_known else "There is no setting of this name."
        message = messages.get(name, message)
        problems.append(FieldError("unknown_key", message, f"algorithm.{str(name)[:80]}"))
    for key in parts.ablations:
        name, ablation = ablations()[key]
        if key in idle_ablations(name, parts.base) and not parts.grid.keys() & ablation.overrides.keys():
            label = algorithms()[name].label
            message = f"“{ablation.label}” removes what these settings do not have: it would be {label} again."
            problems.append(FieldError("unused", message, "ablations"))
    longest = max((variant.label for variant in variants if variant.point), key=len, default="")
    if len(longest) > MAX_LABEL:
        message = f"“{longest}” is too long for the name of a row, at most {MAX_LABEL} characters: give fewer digits."
        problems.append(FieldError("too_long", message, f"grid.{next(iter(parts.grid))}"))
    if (num_runs := len(variants) * len(parts.seeds)) > MAX_SWEEP_RUNS:
        product = f"{len(variants)} variants × {len(parts.seeds)} seeds are {num_runs}"
        problems.append(FieldError("too_many_runs", f"A sweep has at most {MAX_SWEEP_RUNS} runs; {product}.", "seeds"))
    errors += problems
    return [] if problems else variants


def _idle_weight(fields: Mapping[str, str], rows: RequestRows) -> list[FieldError]:
    """An error where the weight of the run's own benchmark varies, and there is no other."""
    message = "Without further training sets benchmark_weight has no effect, so there is nothing to vary."
    field = fields.get("training.benchmark_weight")
    return [FieldError("unused", message, field)] if field and not rows.training_sets else []


def _settings_of(name: str) -> Iterable[str]:
    """Those of an algorithm; of one that does not exist, all: the error is then about its name."""
    cls = algorithms().get(name)
    return settings_schema() if cls is None else cls.model_fields


def _repeated_runs(planned: list[PlannedRun]) -> list[FieldError]:
    """Errors for equal runs: an ablation that is also a point of the grid, or the seeds 1 and "01"."""
    errors = []
    labels: dict[str, str] = {}
    for run in planned:
        label = run.variant.label
        key = run.spec.model_dump_json()
        if labels.get(key) == label:
            errors.append(FieldError("repeated", "Each of the seeds may be named once.", "seeds"))
        first = labels.setdefault(key, label)
        if first != label:
            field = "ablations" if run.variant.ablation else "algorithms"
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
    cautions = {caution.code for run in runs for caution in run.spec.cautions()}  # other codes confirm nothing
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
