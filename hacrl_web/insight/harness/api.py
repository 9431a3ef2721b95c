"""The REST API's part for evaluations by lm-evaluation-harness: start one. GET /runs/ID/evaluations has its scores."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Field, Router, Status
from pydantic import WithJsonSchema

from hacrl_web.accounts.tokens.idempotency import idempotent
from hacrl_web.insight.evaluations.api import AgentsRequest
from hacrl_web.insight.harness.views import launch_harness_evaluation
from hacrl_web.runs.run.api import RunAnswer, detail

router = Router(tags=["insight"])


class HarnessRequest(AgentsRequest):
    tasks: list[str] = Field([], description="Of lm-evaluation-harness. Repeat it.")
    num_fewshot: int | None = Field(None, description="Examples before each question; else each task's own.")
    limit: int | None = Field(None, description="Questions of each task at most; 0: all.")
    batch_size: int | None = Field(None, description="Requests in one batch.")
    prompt_format: str = Field("agent", description="agent, chat or plain.")
    time_limit_s: int | None = Field(None, description="Of the evaluation of one model, in seconds.")


HarnessBody = Annotated[dict[str, Any], WithJsonSchema(HarnessRequest.json_schema()), Body()]


@router.post("/harness-evaluations", response={201: RunAnswer}, summary="Let lm-evaluation-harness evaluate models")
@idempotent
def create_harness_evaluation(request: HttpRequest, payload: HarnessBody) -> Any:
    return Status(201, detail(launch_harness_evaluation(request.user, payload)))
