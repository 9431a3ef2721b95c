"""API of judges, with the services, checks and messages of the pages. A key goes in and never comes out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema, Status
from pydantic import Field

from hacrl_web.registry import judges
from hacrl_web.registry.models import Benchmark, Judge
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["judges"])


class JudgeIn(StrictBody):
    """settings: of docs/rewards.md, such as {"kind": "endpoint", "address": ..., "model": ...}; key: of its address."""

    # The service reports a missing text.
    name: str = Field("", description="Its name; that of the file if it is left out.")
    settings: dict[str, Any] = {}
    key: str = ""


class JudgeSettingsIn(StrictBody):
    """key: empty keeps the stored one, unless the address changes."""

    settings: dict[str, Any] = {}
    key: str = ""


class JudgeOut(Schema):
    """version: the beginning of the SHA-256 of the settings that act on its rewards; has_key: whether one is stored."""

    id: int
    name: str
    version: str
    sha256: str
    settings: dict[str, Any]
    has_key: bool
    key_set_at: datetime | None
    created_at: datetime


class JudgeTryIn(StrictBody):
    question: str = Field("", description="The question.")
    gold: str = Field("", description="The reference answer.")
    response: str = Field("", description="The text to judge.")


class JudgeQuestionsIn(StrictBody):
    """benchmark: its id."""

    benchmark: Annotated[int | None, Field(ge=0, lt=2**63)] = None


class JudgedResponse(Schema):
    """reward: 0 to 1, null unscorable.  cost: in the currency of the judge's prices."""

    reward: float | None
    reason: str
    seconds: float
    cost: float


class JudgedAnswer(JudgedResponse):
    version: str


class JudgedQuestion(Schema):
    """correct: the reward of the boxed reference answer; none: that of a response without an answer."""

    question: str | None
    answer: str | None
    correct: JudgedResponse
    none: JudgedResponse


def _judge(request: HttpRequest, pk: int) -> Judge:
    return get_object_or_404(Judge.objects.visible_to(request.user), pk=pk)


@router.get("/judges", response=PageOf[JudgeOut])
def list_judges(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(Judge.objects.visible_to(request.user), query)


@router.post("/judges", response={201: JudgeOut}, summary="Register a judge")
def create_judge(request: HttpRequest, payload: JudgeIn) -> Any:
    row = judges.register_judge(request.user, name=payload.name, fields=payload.settings, key=payload.key)
    return Status(201, row)


@router.get("/judges/{int:pk}", response=JudgeOut)
def get_judge(request: HttpRequest, pk: int) -> Any:
    return _judge(request, pk)


@router.put("/judges/{int:pk}", response=JudgeOut, summary="Change the settings of a judge")
def put_judge(request: HttpRequest, pk: int, payload: JudgeSettingsIn) -> Any:
    """Runs use them from their next attempt on."""
    return judges.update_judge(request.user, _judge(request, pk), payload.settings, payload.key)


@router.delete("/judges/{int:pk}", response={204: None})
def remove_judge(request: HttpRequest, pk: int) -> Any:
    judges.delete_judge(request.user, _judge(request, pk))
    return Status(204, None)


@router.post("/judges/{int:pk}/try", response=JudgedAnswer, summary="The reward of one response by a judge")
def ask_judge(request: HttpRequest, pk: int, payload: JudgeTryIn) -> Any:
    return judges.judge_of_response(_judge(request, pk), **payload.dict())


@router.post("/judges/{int:pk}/questions", response=list[JudgedQuestion], summary="A judge's rewards on a benchmark")
def judge_questions(request: HttpRequest, pk: int, payload: JudgeQuestionsIn) -> Any:
    """Of the first questions: the reward of the boxed reference answer, and of a response without an answer."""
    judge = _judge(request, pk)
    if payload.benchmark is None:
        raise FieldErrors.single("missing", "Choose a benchmark.", "benchmark")
    row = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=payload.benchmark)
    return judges.judge_of_benchmark(judge, row)
