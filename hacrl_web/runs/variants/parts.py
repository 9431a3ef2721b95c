"""What only a sweep's request has: algorithms, ablations, seeds, and a grid or a search. They give its variants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import prod
from typing import Any

from hacrl_web.runs.variants.grid import (
    MAX_LABEL,
    MAX_SWEEP_RUNS,
    Variant,
    ablations,
    expand,
    grid_of,
    idle_ablations,
    rule_or_none,
)
from hacrl_web.runs.variants.points import random_points
from hacrl_web.runs.variants.search_settings import KEY as SEARCH
from hacrl_web.runs.variants.search_settings import SearchSettings, search_of
from hacrl_web.web.errors import FieldError
from workers.algorithms.registry import algorithms, settings_schema
from workers.contract.spec.algorithm import left_settings, without_idle
from workers.contract.spec.run import RunSpec

SWEEP_KEYS = frozenset({"algorithms", "ablations", "seeds", "grid", SEARCH})


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
        """The field of the request that has the values of each setting that varies."""
        if self.search is not None:
            return {name: f"{SEARCH}.parameters.{name}" for name in self.search.parameters}
        return {name: f"grid.{name}" for name in self.grid}


def sweep_parts(request: Mapping[str, Any], errors: list[FieldError]) -> SweepParts:
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


def variants_of(parts: SweepParts, errors: list[FieldError]) -> list[Variant]:
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


def _settings_of(name: str) -> Iterable[str]:
    """The settings of an algorithm; all settings if it does not exist: the error is then about its name."""
    cls = algorithms().get(name)
    return settings_schema() if cls is None else cls.model_fields


def other_than_one(
    algorithms: Collection[Any], ablations: Collection[Any], seeds: Collection[Any], grid: Mapping[str, Any]
) -> list[FieldError]:
    """Errors unless a search is of one algorithm on one seed, without ablations and grid."""
    errors = []
    if len(algorithms) != 1 or ablations:
        message = "A search tries values of one algorithm: choose one, without ablations."
        errors.append(FieldError("invalid", message, "algorithms"))
    if len(seeds) > 1:
        errors.append(FieldError("too_long", "A search runs each trial on one seed: give one.", "seeds"))
    if grid:
        message = "A search takes its values from its parameters: leave out the grid."
        errors.append(FieldError("unknown_key", message, f"grid.{next(iter(grid))}"))
    return errors


def unused_parameters(algorithm: str, base: Mapping[str, Any], search: SearchSettings) -> list[FieldError]:
    """Errors for parameters that the algorithm does not use. base: the section `algorithm` of the request."""
    rule = rule_or_none(algorithm, base)
    if rule is None:  # check_spec adds the error
        return []
    return [
        FieldError(
            "unused", f"{rule.label} does not use {name}, so there is nothing to vary.", f"{SEARCH}.parameters.{name}"
        )
        for name in search.parameters
        if "." not in name and name not in type(rule).model_fields
    ]


def probe_variants(algorithm: str, search: SearchSettings) -> list[Variant]:
    """What is checked before a search: all parameters at their lower ends, all at their upper ones, further choices."""
    lowest = {name: parameter.ends[0] for name, parameter in search.parameters.items()}
    highest = {name: parameter.ends[-1] for name, parameter in search.parameters.items()}
    between = [
        lowest | {name: choice} for name, parameter in search.parameters.items() for choice in parameter.ends[1:-1]
    ]
    return [Variant(algorithm, point=point, trial=0) for point in (lowest, highest, *between)]


def trial_variants(algorithm: str, search: SearchSettings) -> list[Variant]:
    """The trials of a random search; of another one, as many points for estimates."""
    return [Variant(algorithm, point=point, trial=number) for number, point in enumerate(random_points(search))]


def search_problems(search: SearchSettings, names: Collection[str], specs: Iterable[RunSpec]) -> list[FieldError]:
    """Errors where the other settings leave a search nothing to judge. names: of the agents."""
    errors = []
    if (search.method == "optuna" or search.pruner != "none") and find_spec("optuna") is None:
        message = "Optuna is not installed here: pip install optuna and restart, or choose random without a pruner."
        errors.append(FieldError("not_installed", message, f"{SEARCH}.method"))
    if search.agent and names and search.agent not in names:
        message = f"The group has no such agent: choose one of {', '.join(names)}, or leave it empty for the mean."
        errors.append(FieldError("not_found", message, f"{SEARCH}.agent"))
    if search.pruner != "none" and any(not 0 < one.evaluation.eval_interval < one.training.steps for one in specs):
        message = (
            "A pruner judges evaluations during training: set “Evaluate every” to fewer steps than a run has, "
            "or choose no pruner."
        )
        errors.append(FieldError("unused", message, f"{SEARCH}.pruner"))
    return errors
