"""The REST API's part for the What-if tab."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import create_model
from typing_extensions import TypedDict

from hacrl_web.insight.what_if.rows import MAX_WINDOW, RecordedCheck
from hacrl_web.insight.what_if.what_if import what_if_answer
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.web.schemas import Number
from workers.algorithms.registry import settings_schema

MAX_STEP = 2**31 - 1
# Two types: a parameter's default becomes part of its type.
First = Annotated[int, Query(ge=0, le=MAX_STEP)]
Last = Annotated[int, Query(ge=0, le=MAX_STEP)]
router = Router(tags=["insight"])


class OutcomeAnswer(TypedDict):
    """Rows of one pair: positive, negative: [evaluated, lower, upper, used] by sign of the advantage."""

    rows: int
    evaluated: int
    lower: int
    upper: int
    used: int
    unknown: int
    weight: Number
    positive: list[int]
    negative: list[int]
    omega: float | None
    omega_range: list[float] | None
    share: float | None


class HypotheticalPair(TypedDict):
    learner: int
    source: int
    recorded: OutcomeAnswer
    hypothetical: OutcomeAnswer


class BoundsAnswer(TypedDict):
    """Lower bounds of the band; null where nothing is clipped."""

    first: float | None
    last: float | None
    delta_step: float | None


class WhatIfAnswer(TypedDict):
    """nothing: why there is nothing to weigh, else empty."""

    nothing: str
    steps: int
    pairs: list[HypotheticalPair]
    agents: NotRequired[list[str]]
    first: NotRequired[int | None]
    last: NotRequired[int | None]
    is_thinned: NotRequired[bool]
    rows: NotRequired[int]
    bounds: NotRequired[list[BoundsAnswer]]
    cautions: NotRequired[list[str]]
    check: NotRequired[RecordedCheck | None]
    clone: NotRequired[str]
    elapsed_ms: NotRequired[float]


def _parameter(schema: dict[str, Any]) -> Any:
    """The type of a setting as a parameter; RunSpec checks its other bounds."""
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if schema["type"] == "integer":  # a window of steps, which are read from the database
        return Annotated[int, Query(le=MAX_WINDOW)]
    return Annotated[float, Query(allow_inf_nan=False)]


_fields: dict[str, Any] = {
    name: (_parameter(schema) | None, None) for name, schema in settings_schema().items() if schema.get("hypothetical")
}
# Settings in place of the run's own: those of any algorithm that What-if can weigh again.
HypotheticalSettings: Any = create_model("HypotheticalSettings", __base__=Schema, **_fields)


@router.get(
    "/runs/{run_id}/what-if", response=WhatIfAnswer, summary="Recorded rollouts, weighed again with other settings"
)
def what_if(
    request: HttpRequest,
    run_id: UUID,
    settings: Query[HypotheticalSettings],
    first: First = 0,
    last: Last = MAX_STEP,
    check: bool = False,
) -> Any:
    """check: also how many of the recorded weights this arithmetic reproduces at the recorded settings."""
    run = visible_run(request, run_id)
    return what_if_answer(run, first, last, settings.dict(exclude_none=True), checks=check)
