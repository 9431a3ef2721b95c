"""The REST API's part for evaluations: start one, and read what a run's evaluations found."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Body, Field, Query, Router, Schema, Status
from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from hacrl_web.accounts.idempotency import idempotent
from hacrl_web.insight.evaluations.evaluations import EvaluationPoint, evaluation_summary
from hacrl_web.insight.evaluations.harness_catalogue import installed_catalogue
from hacrl_web.insight.evaluations.harness_launch import launch_harness_evaluation
from hacrl_web.insight.evaluations.harness_results import HarnessLine, lines_of_run
from hacrl_web.insight.evaluations.new_evaluation import launch_evaluation
from hacrl_web.runs.api.runs import detail
from hacrl_web.runs.api.schemas import RunAnswer
from hacrl_web.runs.models import Run

router = Router(tags=["insight"])


class EvaluatedAgent(TypedDict):
    name: str
    points: list[EvaluationPoint]


class EvaluatedBenchmark(TypedDict):
    name: str
    is_own: bool
    score_word: str
    agents: list[EvaluatedAgent]


class EvaluationsAnswer(TypedDict):
    """harness: what lm-evaluation-harness measured; of a run that trained, on its checkpoints."""

    benchmarks: list[EvaluatedBenchmark]
    harness: list[HarnessLine]


class HarnessTasksAnswer(TypedDict):
    """version: of the harness; empty where this host has none, and so no names.  count: of all that match."""

    version: str
    count: int
    items: list[str]


class HarnessTasksQuery(Schema):
    q: str = Query("", max_length=200)
    limit: int = Query(200, ge=1, le=100_000)


class EvaluationRequest(Schema):
    """The service checks it, with the form's messages."""

    models: list[int] = []
    group: int | None = Field(None, description="All its agents.")
    run: str | None = Field(None, description="The agents of a checkpoint of this run.")
    step: int | None = Field(None, description="The checkpoint's; the newest if it is left out.")
    benchmarks: list[int] = []
    num_samples: int = Field(1, description="Answers to each question.")
    temperature: float = Field(0, description="0: greedy; several answers to a question need more.")
    max_completion_length: int | None = Field(
        None, description="Left out: as in training, or what the shortest context allows."
    )
    max_questions: int = Field(0, description="Of each benchmark; 0: all.")
    seed: int = Field(0, description="Of random choices.")
    name: str = Field("", description="Of the evaluation.")


class HarnessRequest(EvaluationRequest):
    tasks: list[str] = Field([], description="Of lm-evaluation-harness. Repeat it.")
    num_fewshot: int | None = Field(None, description="Examples before each question; else each task's own.")
    limit: int | None = Field(None, description="Questions of each task at most; 0: all.")
    batch_size: int | None = Field(None, description="Requests in one batch.")
    prompt_format: str = Field("agent", description="agent, chat or plain.")
    time_limit_s: int | None = Field(None, description="Of the evaluation of one model, in seconds.")


EvaluationBody = Annotated[dict[str, Any], WithJsonSchema(EvaluationRequest.json_schema()), Body()]
HarnessBody = Annotated[dict[str, Any], WithJsonSchema(HarnessRequest.json_schema()), Body()]


@router.post("/evaluations", response={201: RunAnswer}, summary="Evaluate models: a run of no training step")
@idempotent
def create_evaluation(request: HttpRequest, payload: EvaluationBody) -> Any:
    return Status(201, detail(launch_evaluation(request.user, payload)))


@router.post("/harness-evaluations", response={201: RunAnswer}, summary="Let lm-evaluation-harness evaluate models")
@idempotent
def create_harness_evaluation(request: HttpRequest, payload: HarnessBody) -> Any:
    return Status(201, detail(launch_harness_evaluation(request.user, payload)))


@router.get("/harness-tasks", response=HarnessTasksAnswer, summary="Names of the harness's tasks")
def list_harness_tasks(request: HttpRequest, query: Query[HarnessTasksQuery]) -> Any:
    """Tasks, groups and tags of lm-evaluation-harness on the web server's host whose name contains `q`: those that
    begin with it first, at most `limit` of them."""
    catalogue = installed_catalogue()
    names = catalogue.search(query.q)
    return {"version": catalogue.version, "count": len(names), "items": names[: query.limit]}


@router.get("/runs/{run_id}/evaluations", response=EvaluationsAnswer, summary="What a run's evaluations found")
def get_evaluations(request: HttpRequest, run_id: UUID) -> Any:
    """By benchmark, the run's own first: each agent's evaluations by step, with estimates and slices.

    `score_word`: what `value` is called, accuracy or, with partial credit, mean reward."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    return {
        "harness": lines_of_run(run, request.user),
        "benchmarks": [
            {
                "name": one.name,
                "is_own": one.is_own,
                "score_word": one.score_word,
                "agents": [{"name": agent.name, "points": agent.points} for agent in one.agents],
            }
            for one in evaluation_summary(run)
        ],
    }
