"""API of what gives rewards: reward functions and judges, with the services, checks and messages of the pages.

A judge's key goes in and never comes out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema, Status
from pydantic import Field

from hacrl_web.registry.models import Benchmark, Judge, RewardFunction
from hacrl_web.registry.rewards import service
from hacrl_web.registry.rewards.service import SourceT
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["reward functions"])
judges_router = Router(tags=["judges"])


class FunctionIn(StrictBody):
    """source: the text of a Python file that defines `reward(question, answer, response, **fields)`."""

    # The service reports a missing text.
    name: str = Field("", description="Its name; that of the file if it is left out.")
    source: str = ""


class SourceIn(StrictBody):
    source: str = ""


class RewardSourceOut(Schema):
    id: int
    name: str
    version: str
    sha256: str
    created_at: datetime


class FunctionOut(RewardSourceOut):
    """version: the beginning of the SHA-256 of its newest text.  uses_network: whether that asks for the network."""

    text: str
    uses_network: bool


class TryIn(StrictBody):
    question: str = Field("", description="The question.")
    gold: str = Field("", description="The reference answer.")
    response: str = Field("", description="The text to judge or to reward.")


class TriedReward(Schema):
    """reward: 0 to 1, null unscorable.  parts: further numbers of a function.  cost: in the currency of a judge's
    prices.  version: of one response, the row's.  sandbox: what fenced a function."""

    reward: float | None
    reason: str
    seconds: float
    parts: dict[str, float] = {}
    cost: float = 0.0
    version: str = ""
    sandbox: str = ""


class TriedQuestion(Schema):
    """correct: the reward of the boxed reference answer; none: that of a response without an answer."""

    question: str | None
    answer: str | None
    correct: TriedReward
    none: TriedReward


class JudgeSettingsIn(StrictBody):
    """key: empty keeps the stored one, unless the address changes."""

    settings: dict[str, Any] = {}
    key: str = ""


class JudgeIn(JudgeSettingsIn):
    """settings: of docs/rewards.md, such as {"kind": "endpoint", "address": ..., "model": ...}; key: of its address."""

    # The service reports a missing text.
    name: str = Field("", description="Its name; that of the file if it is left out.")


class JudgeOut(RewardSourceOut):
    """version: the beginning of the SHA-256 of the settings that act on its rewards; has_key: whether one is stored."""

    settings: dict[str, Any]
    has_key: bool
    key_set_at: datetime | None


class JudgeQuestionsIn(StrictBody):
    """benchmark: its id."""

    benchmark: Annotated[int | None, Field(ge=0, lt=2**63)] = None


def _row(request: HttpRequest, kind: type[SourceT], pk: int) -> SourceT:
    return get_object_or_404(kind.objects.visible_to(request.user), pk=pk)


def _rewards(request: HttpRequest, row: Judge | RewardFunction, benchmark: int | None) -> Any:
    if benchmark is None:
        raise FieldErrors.single("missing", "Choose a benchmark.", "benchmark")
    return service.rewards_on(row, get_object_or_404(Benchmark.objects.visible_to(request.user), pk=benchmark))


@router.get("/reward-functions", response=PageOf[FunctionOut])
def list_functions(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(RewardFunction.objects.visible_to(request.user), query)


@router.post("/reward-functions", response={201: FunctionOut}, summary="Register a reward function")
def create_function(request: HttpRequest, payload: FunctionIn) -> Any:
    return Status(201, service.register_source(request.user, RewardFunction, name=payload.name, content=payload.source))


@router.get("/reward-functions/{int:pk}", response=FunctionOut)
def get_function(request: HttpRequest, pk: int) -> Any:
    return _row(request, RewardFunction, pk)


@router.put("/reward-functions/{int:pk}", response=FunctionOut, summary="Add a version of a reward function")
def put_function(request: HttpRequest, pk: int, payload: SourceIn) -> Any:
    """Change a reward function. Runs use the new text from their next attempt on."""
    return service.update_source(request.user, _row(request, RewardFunction, pk), payload.source)


@router.delete("/reward-functions/{int:pk}", response={204: None})
def remove_function(request: HttpRequest, pk: int) -> Any:
    service.delete_source(request.user, _row(request, RewardFunction, pk))
    return Status(204, None)


@router.post(
    "/reward-functions/{int:pk}/try", response=TriedReward, exclude_unset=True, summary="The reward of one response"
)
def try_response(request: HttpRequest, pk: int, payload: TryIn) -> Any:
    return service.reward_of(_row(request, RewardFunction, pk), **payload.dict())


@router.get(
    "/reward-functions/{int:pk}/questions",
    response=list[TriedQuestion],
    exclude_unset=True,
    summary="Its rewards on a benchmark",
)
def try_questions(request: HttpRequest, pk: int, benchmark: int | None = Query(None, ge=0, lt=2**63)) -> Any:
    """Reward the boxed reference answer of each of the first questions, and a response without an answer."""
    return _rewards(request, _row(request, RewardFunction, pk), benchmark)


@judges_router.get("/judges", response=PageOf[JudgeOut])
def list_judges(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(Judge.objects.visible_to(request.user), query)


@judges_router.post("/judges", response={201: JudgeOut}, summary="Register a judge")
def create_judge(request: HttpRequest, payload: JudgeIn) -> Any:
    fields = {"name": payload.name, "content": payload.settings, "key": payload.key}
    return Status(201, service.register_source(request.user, Judge, **fields))


@judges_router.get("/judges/{int:pk}", response=JudgeOut)
def get_judge(request: HttpRequest, pk: int) -> Any:
    return _row(request, Judge, pk)


@judges_router.put("/judges/{int:pk}", response=JudgeOut, summary="Change the settings of a judge")
def put_judge(request: HttpRequest, pk: int, payload: JudgeSettingsIn) -> Any:
    """Change a judge. Runs use the new settings from their next attempt on."""
    return service.update_source(request.user, _row(request, Judge, pk), payload.settings, payload.key)


@judges_router.delete("/judges/{int:pk}", response={204: None})
def remove_judge(request: HttpRequest, pk: int) -> Any:
    service.delete_source(request.user, _row(request, Judge, pk))
    return Status(204, None)


@judges_router.post(
    "/judges/{int:pk}/try", response=TriedReward, exclude_unset=True, summary="The reward of one response by a judge"
)
def ask_judge(request: HttpRequest, pk: int, payload: TryIn) -> Any:
    return service.reward_of(_row(request, Judge, pk), **payload.dict())


@judges_router.post(
    "/judges/{int:pk}/questions",
    response=list[TriedQuestion],
    exclude_unset=True,
    summary="A judge's rewards on a benchmark",
)
def judge_questions(request: HttpRequest, pk: int, payload: JudgeQuestionsIn) -> Any:
    """Reward the boxed reference answer of each of the first questions, and a response without an answer."""
    return _rewards(request, _row(request, Judge, pk), payload.benchmark)
