"""API of reward functions, with the services, checks and messages of the pages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema, Status

from hacrl_web.registry import reward_functions as functions
from hacrl_web.registry.models import Benchmark, RewardFunction
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["reward functions"])


class FunctionIn(StrictBody):
    """source: the text of a Python file that defines `reward(question, answer, response, **fields)`."""

    # The service reports a missing text.
    name: str = Field("", description="Its name; that of the file if it is left out.")
    source: str = ""


class SourceIn(StrictBody):
    source: str = ""


class FunctionOut(Schema):
    """version: the beginning of the SHA-256 of its newest text.  uses_network: whether that asks for the network."""

    id: int
    name: str
    version: str
    sha256: str
    text: str
    uses_network: bool
    created_at: datetime


class FunctionTryIn(StrictBody):
    question: str = Field("", description="The question.")
    gold: str = Field("", description="The reference answer.")
    response: str = Field("", description="The text to reward.")


class RewardOut(Schema):
    """reward: 0 to 1, null unscorable.  parts: further numbers that the function returned."""

    reward: float | None
    reason: str
    parts: dict[str, float]
    seconds: float
    version: str


class TriedReward(Schema):
    reward: float | None
    reason: str
    parts: dict[str, float]
    seconds: float


class TriedQuestion(Schema):
    """correct: the reward of the boxed reference answer; none: that of a response without an answer."""

    question: str | None
    answer: str | None
    correct: TriedReward
    none: TriedReward


def _function(request: HttpRequest, pk: int) -> RewardFunction:
    return get_object_or_404(RewardFunction.objects.visible_to(request.user), pk=pk)


@router.get("/reward-functions", response=PageOf[FunctionOut])
def list_functions(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(RewardFunction.objects.visible_to(request.user), query)


@router.post("/reward-functions", response={201: FunctionOut}, summary="Register a reward function")
def create_function(request: HttpRequest, payload: FunctionIn) -> Any:
    return Status(201, functions.register_function(request.user, name=payload.name, source=payload.source))


@router.get("/reward-functions/{int:pk}", response=FunctionOut)
def get_function(request: HttpRequest, pk: int) -> Any:
    return _function(request, pk)


@router.put("/reward-functions/{int:pk}", response=FunctionOut, summary="Add a version of a reward function")
def put_function(request: HttpRequest, pk: int, payload: SourceIn) -> Any:
    """Runs use it from their next attempt on."""
    return functions.update_function(request.user, _function(request, pk), payload.source)


@router.delete("/reward-functions/{int:pk}", response={204: None})
def remove_function(request: HttpRequest, pk: int) -> Any:
    functions.delete_function(request.user, _function(request, pk))
    return Status(204, None)


@router.post("/reward-functions/{int:pk}/try", response=RewardOut, summary="The reward of one response")
def try_response(request: HttpRequest, pk: int, payload: FunctionTryIn) -> Any:
    return functions.reward_of(_function(request, pk), **payload.dict())


@router.get("/reward-functions/{int:pk}/questions", response=list[TriedQuestion], summary="Its rewards on a benchmark")
def try_questions(request: HttpRequest, pk: int, benchmark: int | None = Query(None, ge=0, lt=2**63)) -> Any:
    """Of the first questions: the reward of the boxed reference answer, and of a response without an answer."""
    function = _function(request, pk)
    if benchmark is None:
        raise FieldErrors.single("missing", "Choose a benchmark.", "benchmark")
    row = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=benchmark)
    return functions.try_on_benchmark(function, row)
