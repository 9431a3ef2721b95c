"""API of what each agent of a group reads for a question."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema

from hacrl_web.registry.benchmarks.questions import QuestionRow
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.registry.prompts.service import TokenPiece, preview_prompts
from hacrl_web.web.errors import FieldErrors

router = Router(tags=["registry"])


class PromptQuestionQuery(Schema):
    benchmark: int | None = Query(None, ge=0, lt=2**63)
    file: str = Query("train", pattern="^(train|held_out)$")
    line: int = Query(0, ge=0, le=100_000_000)


class AgentPromptOut(Schema):
    """error: why the agent cannot read the question; empty if it can."""

    agent: str = Field(alias="agent.name")
    num_tokens: int
    text: str
    token_ids: list[int]
    pieces: list[TokenPiece]
    notes: list[str]
    error: str


class PromptPreviewOut(Schema):
    question: QuestionRow
    prompts: list[AgentPromptOut]


@router.get("/groups/{int:pk}/prompts", response=PromptPreviewOut, summary="What each agent reads for a question")
def get_prompts(request: HttpRequest, pk: int, query: Query[PromptQuestionQuery]) -> Any:
    """The exact tokens of each agent's prompt, as the trainer makes them. Takes seconds: tokenizers are loaded."""
    group = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=pk)
    if query.benchmark is None:
        raise FieldErrors.single("missing", "Choose a benchmark.", "benchmark")
    benchmark = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=query.benchmark)
    return preview_prompts(group, benchmark, query.line, query.file, user=request.user)
