"""The REST API's part for checkpoints: list, download, promote, extend, ask."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired
from uuid import UUID

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.tokens.idempotency import idempotent
from hacrl_web.insight.checkpoints import ask_agents, checkpoints, reuse, uploads
from hacrl_web.insight.checkpoints.views import archive_of
from hacrl_web.registry.language_models.api import ModelOut
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.run.api import RunAnswer, detail
from hacrl_web.web.schemas import StrictBody

MAX_STEP = 10**9 - 1
MAX_PLACE = 99
Step = Annotated[int, Field(ge=0, le=MAX_STEP)]
router = Router(tags=["insight"])


class CheckpointsAnswer(TypedDict):
    """is_here: whether this host holds the run's folder.  score_word: what `accuracy` of the items is called.

    removal: why none is left, if the project's retention has removed them; else empty.
    """

    is_here: bool
    host: str
    num_removed: int
    removal: str
    score_word: str
    items: list[checkpoints.CheckpointSummary]
    count: int
    next: None


class AskVerdict(TypedDict):
    reward: float | None
    reason: str


class AgentReply(TypedDict):
    agent: str
    text: NotRequired[str]
    finish_reason: NotRequired[str]
    num_tokens: NotRequired[int]
    seconds: NotRequired[float]
    verdict: NotRequired[AskVerdict | None]
    error: NotRequired[str]


class AskAnswer(TypedDict):
    step: int
    answers: list[AgentReply]


@router.get("/runs/{run_id}/checkpoints", response=CheckpointsAnswer, summary="The checkpoints of a run, newest first")
def list_checkpoints(
    request: HttpRequest, run_id: UUID, verify: Annotated[int | None, Query(ge=0, le=MAX_STEP)] = None
) -> Any:
    """`verify`: the step whose files are read byte by byte. `is_here` is false if they are on another host."""
    run = visible_run(request, run_id)
    listing = checkpoints.list_of_checkpoints(run, verify=verify)
    return {
        "is_here": listing.is_here,
        "host": listing.host,
        "num_removed": listing.num_removed,
        "removal": listing.removal,
        "score_word": run.score_word,
        "items": listing.checkpoints,
        "count": len(listing.checkpoints),
        "next": None,
    }


@router.get("/runs/{run_id}/checkpoints/{int:step}/{int:agent}.zip", response={200: None}, summary="An agent's folder")
def download_agent(request: HttpRequest, run_id: UUID, step: int, agent: int) -> StreamingHttpResponse:
    """`agent` is its place in the checkpoint. The folder loads with `AutoModelForCausalLM.from_pretrained`.

    Its README.md is a model card: base models, evaluations with intervals, settings, how to serve it.
    """
    return archive_of(request, visible_run(request, run_id), step, agent)


class Promotion(StrictBody):
    """`agent`: its place in the checkpoint.  `name`: of the new model; one is chosen if it is empty."""

    step: Step
    agent: Annotated[int, Field(ge=0, le=MAX_PLACE)]
    name: str = ""


@router.post("/runs/{run_id}/checkpoints/promote", response={201: ModelOut}, summary="Make a model of a trained agent")
def promote_agent(request: HttpRequest, run_id: UUID, payload: Promotion) -> Any:
    run = visible_run(request, run_id)
    manifest, agent = checkpoints.checkpoint_and_agent(run, payload.step, payload.agent)
    name = payload.name or reuse.proposed_name(run, agent, payload.step, reuse.model_names(run))
    return Status(201, reuse.promote_checkpoint(request.user, run, manifest, agent, name))


class Push(StrictBody):
    """`agent`: its place in the checkpoint.  `repo`: OWNER/NAME, or NAME for the account of the Hub token.

    content: `merged` (the whole model), `adapter` (the LoRA matrices alone) or `all`.
    """

    step: Step
    agent: Annotated[int, Field(ge=0, le=MAX_PLACE)]
    repo: Annotated[str, Field(max_length=200)]
    content: uploads.Content = "merged"
    is_private: bool = True


class UploadsAnswer(TypedDict):
    items: list[uploads.Upload]


@router.post("/runs/{run_id}/checkpoints/push", response={202: uploads.Upload}, summary="Send an agent to the hub")
def push_agent(request: HttpRequest, run_id: UUID, payload: Push) -> Any:
    """Upload an agent in the background, with the stored Hub token. /runs/{run_id}/uploads says how far it is."""
    run = visible_run(request, run_id)
    manifest, agent = checkpoints.checkpoint_and_agent(run, payload.step, payload.agent)
    repo, content, is_private = payload.repo, payload.content, payload.is_private
    sending = uploads.start_upload(
        request.user, run, manifest, agent, repo=repo, content=content, is_private=is_private
    )
    return Status(202, sending)


@router.get("/runs/{run_id}/uploads", response=UploadsAnswer, summary="Uploads of a run's agents to the hub")
def list_uploads(request: HttpRequest, run_id: UUID) -> Any:
    """The uploads from this host, the newest first."""
    return {"items": uploads.uploads_of(visible_run(request, run_id))}


class Extension(StrictBody):
    """`step`: of the checkpoint to continue from.  `steps`: how many more."""

    step: Step
    steps: Annotated[int, Field(ge=1, le=MAX_STEP)]


@router.post(
    "/runs/{run_id}/checkpoints/extend", response={201: RunAnswer}, summary="A new run that continues from a checkpoint"
)
@idempotent
def extend_run(request: HttpRequest, run_id: UUID, payload: Extension) -> Any:
    """Launch a run that continues from a checkpoint with the same settings, for more steps. This run stays as it is."""
    run = visible_run(request, run_id)
    manifest = checkpoints.find_checkpoint(run, payload.step)
    return Status(201, detail(reuse.launch_extension(request.user, run, manifest, payload.steps)))


class AskBody(StrictBody):
    """A question to every agent of a checkpoint, with sampling settings; `expected` is optional."""

    step: Step
    question: str
    expected: str = ""
    temperature: float = 0.0
    seed: int = 0
    max_new_tokens: int | None = None


@router.post("/runs/{run_id}/checkpoints/ask", response=AskAnswer, summary="Ask every agent of a checkpoint")
def ask(request: HttpRequest, run_id: UUID, payload: AskBody) -> Any:
    """Returns an answer or an `error` for each agent. This may take a minute."""
    run = visible_run(request, run_id)
    texts = {name: "" if value is None else str(value) for name, value in payload.dict(exclude={"step"}).items()}
    question = ask_agents.checked_question(texts, run)
    manifest = checkpoints.find_checkpoint(run, payload.step)
    return {"step": payload.step, "answers": ask_agents.ask_checkpoint(request.user, run, manifest, question)}
