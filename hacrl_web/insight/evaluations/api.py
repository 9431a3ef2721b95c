"""The REST API's part for evaluations: start one, and read what a run's evaluations found."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Body, Field, Router, Schema, Status
from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from hacrl_web.accounts.tokens.idempotency import idempotent
from hacrl_web.insight.evaluations.evaluations import BenchmarkEvaluations, evaluation_summary
from hacrl_web.insight.evaluations.harness_results import HarnessLine, lines_of_run
from hacrl_web.insight.evaluations.new_evaluation import launch_evaluation
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.run.api import RunAnswer, detail

router = Router(tags=["insight"])


class EvaluationsAnswer(TypedDict):
    """harness: what lm-evaluation-harness measured; of a run that trained, on its checkpoints."""

    benchmarks: list[BenchmarkEvaluations]
    harness: list[HarnessLine]


class AgentsRequest(Schema):
    """Which agents are evaluated. The service checks it, with the form's messages."""

    models: list[int] = []
    group: int | None = Field(None, description="All its agents.")
    run: str | None = Field(None, description="The agents of a checkpoint of this run.")
    step: int | None = Field(None, description="The checkpoint's; the newest if it is left out.")
    seed: int = Field(0, description="Of random choices.")
    name: str = Field("", description="Of the evaluation.")


class EvaluationRequest(AgentsRequest):
    benchmarks: list[int] = []
    num_samples: int = Field(1, description="Answers to each question.")
    temperature: float = Field(0, description="0: greedy; several answers to a question need more.")
    max_completion_length: int | None = Field(
        None, description="Left out: as in training, or what the shortest context allows."
    )
    max_questions: int = Field(0, description="Of each benchmark; 0: all.")


EvaluationBody = Annotated[dict[str, Any], WithJsonSchema(EvaluationRequest.json_schema()), Body()]


@router.post("/evaluations", response={201: RunAnswer}, summary="Evaluate models: a run of no training step")
@idempotent
def create_evaluation(request: HttpRequest, payload: EvaluationBody) -> Any:
    return Status(201, detail(launch_evaluation(request.user, payload)))


@router.get("/runs/{run_id}/evaluations", response=EvaluationsAnswer, summary="What a run's evaluations found")
def get_evaluations(request: HttpRequest, run_id: UUID) -> Any:
    """The evaluations of each agent by benchmark (the run's own first) and step, with estimates and slices.

    `score_word`: what `value` is called, accuracy or, with partial credit, mean reward."""
    run = visible_run(request, run_id)
    return {"harness": lines_of_run(run, request.user), "benchmarks": evaluation_summary(run)}
