"""The REST API's part for rollouts: the search of the Rollouts tab, and one rollout's text."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router
from typing_extensions import TypedDict

from hacrl_web.insight.rollouts.filter import RolloutFilter, read_filter
from hacrl_web.insight.rollouts.influential import InfluentialAnswer, most_influential
from hacrl_web.insight.rollouts.search import RolloutHit, search_rollouts
from hacrl_web.insight.rollouts.turns import RecordedTurn, read_turns, shown_turns
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.storage.stored_spec import recorded_spec
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import clean_text
from hacrl_web.web.schemas import query_schema
from hacrl_web.web.visible import visible

MAX_TEXT = 200_000  # characters of a text on a page
router = Router(tags=["insight"])


class RolloutsAnswer(TypedDict):
    """`next` and `previous` go into `after` and `before`; stopped_at: the step where a long search stopped;
    sorted_from: the first step that a sort covers, if it leaves out earlier ones.
    """

    items: list[RolloutHit]
    next: str | None
    previous: str | None
    stopped_at: int | None
    sorted_from: int | None


class RolloutTextAnswer(TypedDict):
    """completion: at most `shown` of `length` characters, if `shown` was asked for.  turns: of a rollout with an
    environment, of which the completion is the last.
    """

    step: int
    agent: str
    prompt_id: str
    sample: int
    prompt: str
    completion: str
    answer: str
    reward: float | None
    turns: list[RecordedTurn]
    length: NotRequired[int]
    shown: NotRequired[int]


class RolloutOrNone(TypedDict):
    rollout: RolloutTextAnswer | None


RolloutParameters = query_schema(RolloutFilter, without=("list",))


@router.get(
    "/runs/{run_id}/rollouts",
    response=RolloutsAnswer,
    summary="Rollouts that a filter finds, in the order of steps or sorted",
)
def find_rollouts(
    request: HttpRequest,
    run_id: UUID,
    query: Query[RolloutParameters],  # type: ignore[valid-type]
) -> Any:
    """`next` and `previous` go into `after` and `before`. A search that takes long stops at `stopped_at`: continue with
    `next`. A filter that cannot be read is refused. The texts: /runs/{run_id}/rollout-text?seq=.

    step `12` or `10-20`, reward `1` or `0.2..0.8` or `none`, `q` a part of the text, `set` a training set; those from
    `learner` on are about what a rollout taught, and find it once for each learner: shared `yes` what its peers
    sampled, prompt_kind `rescue` or `mistake`, sort `weight` or `surprise` (how far s is from
    1), the largest first.
    """
    run = visible_run(request, run_id)
    rollout_filter, ignored = read_filter(request.GET, run.agent_names)
    if ignored:
        message = f"This cannot be read, or is not known in this run: {', '.join(ignored)}."
        raise FieldErrors.single("invalid", message)
    page = search_rollouts(run, rollout_filter)
    return {
        "items": page.hits,
        "next": str(page.after) if page.after else None,
        "previous": str(page.before) if page.before else None,
        "stopped_at": page.stopped_at,
        "sorted_from": page.sorted_from,
    }


@router.get(
    "/runs/{run_id}/rollouts/influential",
    response=InfluentialAnswer,
    summary="The rollouts of a step that moved a learner most, beside its own answers",
)
def get_influential(
    request: HttpRequest,
    run_id: UUID,
    step: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    learner: Annotated[str, Query(max_length=200)] = "",
) -> Any:
    """Shared rollouts, or own ones where the run shares none. Without a step: of the newest one. Texts are cut."""
    run = visible_run(request, run_id)
    spec = recorded_spec(run)
    is_shared = spec.algorithm.shares_rollouts and len(spec.agents) > 1
    return most_influential(run, step, is_shared=is_shared, learner=clean_text(learner))


@router.get(
    "/runs/{run_id}/rollout-text", response=RolloutOrNone, summary="A recorded rollout with its prompt and its text"
)
def rollout_text(
    request: HttpRequest, run_id: UUID, seq: Annotated[int, Query(ge=0, lt=2**62)] = 0, shown: bool = False
) -> Any:
    """shown: the text as a page shows it, with control characters written out, and cut at its largest size."""
    run = visible_run(request, run_id)
    names = ("step", "agent", "prompt_id", "sample", "prompt", "completion", "answer", "reward", "turns")
    answer = run.rollouts.filter(seq=seq).values(*names).first()
    if answer is not None:
        turns = answer["turns"]
        answer["turns"] = shown_turns(turns, MAX_TEXT) if shown else read_turns(turns)
    if answer is not None and shown:
        length = len(answer["completion"])
        answer["completion"] = visible(answer["completion"][:MAX_TEXT])
        answer |= {"length": length, "shown": min(length, MAX_TEXT)}
    return {"rollout": answer}
