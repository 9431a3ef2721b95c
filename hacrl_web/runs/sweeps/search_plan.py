"""What a sweep that searches needs of its request, and the runs that are checked before its first trial."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from hacrl_web.runs.grids.variants import Variant, rule_or_none
from hacrl_web.runs.launch.plan import RequestRows
from hacrl_web.runs.trials.points import random_points
from hacrl_web.runs.trials.search_settings import KEY, SearchSettings
from hacrl_web.web.errors import FieldError
from workers.contract.spec.run import RunSpec


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
            "unused", f"{rule.label} does not use {name}, so there is nothing to vary.", f"{KEY}.parameters.{name}"
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


def search_problems(search: SearchSettings, rows: RequestRows, specs: Iterable[RunSpec]) -> list[FieldError]:
    """Errors where the other settings leave a search nothing to judge."""
    errors = []
    if (search.method == "optuna" or search.pruner != "none") and find_spec("optuna") is None:
        message = "Optuna is not installed here: pip install optuna and restart, or choose random without a pruner."
        errors.append(FieldError("not_installed", message, f"{KEY}.method"))
    names = [agent.name for agent in rows.agents]
    if search.agent and names and search.agent not in names:
        message = f"The group has no such agent: choose one of {', '.join(names)}, or leave it empty for the mean."
        errors.append(FieldError("not_found", message, f"{KEY}.agent"))
    if search.pruner != "none" and any(not 0 < one.evaluation.eval_interval < one.training.steps for one in specs):
        message = (
            "A pruner judges evaluations during training: set “Evaluate every” to fewer steps than a run has, "
            "or choose no pruner."
        )
        errors.append(FieldError("unused", message, f"{KEY}.pruner"))
    return errors
