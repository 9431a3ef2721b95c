"""The settings of a search, part of a sweep's request: how its trials get their values, and how they are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hacrl_web.runs.variants.parameters import parameters_of
from hacrl_web.web.errors import FieldError, plain_errors
from workers.contract.settings import none_if_empty, setting

KEY = "search"  # of a sweep's request
MAX_TRIALS = 200
MAX_AT_ONCE = 20


class SearchSettings(BaseModel):
    """The object `search` of a sweep's request. agent: whose held-out accuracy is maximized; empty: the mean over all.

    at_once: trials under way; None: as many as workers take, and at most MAX_AT_ONCE.
    """

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    method: Literal["random", "optuna"] = setting(
        label="How to choose values",
        help="random: trials drawn from ranges. optuna: trials suggested by what earlier ones "
        "reached (TPE). A search tries one algorithm on one seed and maximizes held-out accuracy.",
        source="design",
    )
    trials: int = setting(20, help="Runs of a search.", source="design", ge=1, le=MAX_TRIALS)
    at_once: Annotated[Annotated[int, Field(ge=1, le=MAX_AT_ONCE)] | None, BeforeValidator(none_if_empty)] = setting(
        None,
        help="Trials under way. Each waits in the queue for a worker as every run does, so never more train than hosts "
        "allow. Empty: as many as workers take, the next one once none of them waits.",
        source="design",
    )
    seed: int = setting(
        0, label="Seed of the search", help="Repeats its random draws.", source="design", ge=0, le=2**32 - 1
    )
    pruner: Literal["none", "median", "halving"] = setting(
        "none",
        help="Stops a trial at an evaluation. median: below the median of earlier trials. halving: not in the better "
        "half at 1, 2, 4, ... times “Evaluate every”.",
        source="design",
    )
    agent: str = setting(
        "", label="Agent to judge by", help="What a trial's score is of.", source="design", max_length=80
    )
    parameters: Any = None  # as sent; of checked settings each Parameter by its name

    @property
    def request(self) -> dict[str, Any]:
        """The search as a request has it."""
        parameters = {name: parameter.request for name, parameter in self.parameters.items()}
        return self.model_dump(exclude={"parameters"}) | {"parameters": parameters}


def search_of(request: Any, errors: list[FieldError]) -> SearchSettings | None:
    """The checked object `search`; None for a grid, and where errors were added to `errors`."""
    if not isinstance(request, Mapping):
        errors.append(FieldError("invalid", "Must be an object with a method: grid, random, optuna.", KEY))
        return None
    if request.get("method") == "grid":
        if further := [key for key in request if key != "method"]:
            message = "A grid takes its values from “grid”: leave this out, or choose another method."
            errors.append(FieldError("unknown_key", message, f"{KEY}.{str(further[0])[:80]}"))
        return None
    problems: list[FieldError] = []
    try:
        settings = SearchSettings.model_validate(dict(request))
    except ValidationError as error:
        errors += [replace(one, field=f"{KEY}.{one.field}") for one in plain_errors(error)]
        return None
    parameters = parameters_of(settings.parameters, problems)
    sizes = [parameter.size for parameter in parameters.values()]
    num_points = None if None in sizes else prod(size for size in sizes if size is not None)
    if not problems and num_points is not None and num_points < settings.trials:
        message = f"These values have {num_points} combinations: give at most {num_points} trials."
        problems.append(FieldError("too_many_runs", message, f"{KEY}.trials"))
    errors += problems
    return None if problems else settings.model_copy(update={"parameters": parameters})


def stored_search(request: Mapping[str, Any]) -> SearchSettings | None:
    """The search of a stored sweep's request; None where it has none. Error: ValueError where it is refused by now."""
    if KEY not in request:
        return None
    errors: list[FieldError] = []
    settings = search_of(request[KEY], errors)
    if errors:
        raise ValueError(" ".join(error.message for error in errors))
    return settings
