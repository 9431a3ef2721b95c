"""The REST API's part for the Collaboration tab: recorded steps, metrics of pairs, sums of a step or run, ratios."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired
from uuid import UUID

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router
from typing_extensions import TypedDict

from hacrl_web.insight.collaboration.collaboration import add_text_differences, sentences, so_far, view
from hacrl_web.insight.collaboration.ratio_histogram import clipping, window_steps
from hacrl_web.insight.collaboration.step_summary import recorded_steps, run_summary, summary_of
from hacrl_web.insight.collaboration.timeline import timeline
from hacrl_web.runs.models import Run
from hacrl_web.runs.storage.stored_spec import recorded_spec
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.schemas import Number
from workers.contract.spec.run import RunSpec

BUDGET_S = 0.25  # of a request for the whole run; the page repeats it until all steps are in the sum
Step = Annotated[int, Query(ge=0, le=2**31 - 1)]
router = Router(tags=["insight"])


class StepsAnswer(TypedDict):
    """Recorded steps of the newest attempt."""

    ended: bool
    attempt: int
    steps: list[int]


class PairLine(TypedDict):
    """A line in buckets; low and high if a bucket has more than one step."""

    steps: list[int]
    last: list[float]
    low: NotRequired[list[float]]
    high: NotRequired[list[float]]


class PairTimeline(TypedDict):
    learner: int
    source: int
    omega: PairLine | None
    clamped: list[int]
    quarantined: list[int]
    alignment: PairLine | None
    clips: dict[str, PairLine | None]


class TimelineOfPairs(TypedDict):
    first: int
    last: int
    width: int
    capability: list[PairLine | None]
    pairs: list[PairTimeline]


class AgentProgress(TypedDict):
    name: str
    peers: str
    accuracy: str


class CollaborationAnswer(StepsAnswer):
    timeline: TimelineOfPairs
    so_far: list[AgentProgress]
    score_word: str


class AgentSums(TypedDict):
    """text_differences: by cause, rollouts of all steps whose text is not what was sampled (docs/metrics.md)."""

    name: str
    rollouts: int
    tokens: int
    verified: int
    verified_tokens: int
    correct: int
    text_differences: dict[str, int]


class PairSumsAnswer(TypedDict):
    """One learner–source pair: counts as [rows, tokens] or by sign of the advantage [positive, negative]."""

    learner: int
    source: int
    rows: int
    tokens: int
    used: list[Number]
    zero: list[Number]
    clipped: list[Number]
    other: list[Number]
    dropped: dict[str, list[int]]
    weight: list[Number]
    lost: list[Number]
    evaluated: list[Number]
    lower: list[Number]
    upper: list[Number]
    positives_are_correct: bool
    prompts: int
    rescue: list[Number]
    avoided: list[Number]
    omega: float | None
    omega_low: float | None
    capability: float | None
    source_capability: float | None
    clamped: bool
    not_drawn: int


class SentenceAnswer(TypedDict):
    kind: str
    text: str
    learner: NotRequired[str]
    source: NotRequired[str]
    prompt_kind: NotRequired[str]


class StepAnswer(TypedDict):
    step: int
    agents: list[AgentSums]
    pairs: list[PairSumsAnswer]
    sentences: list[SentenceAnswer]


class WholeRunAnswer(TypedDict):
    """done: how many of the `of` steps are added up; repeat the request until they are equal."""

    done: int
    of: int
    agents: list[AgentSums]
    pairs: list[PairSumsAnswer]


class BandStep(TypedDict):
    """The band after m updates; m is null if it is the same for all."""

    m: int | None
    low: float
    high: float


class GatePoint(TypedDict):
    """|weight| of a shared rollout of |A| = 1 and omega 1 at the ratio s, by the sign of A."""

    s: float
    positive: float
    negative: float


class SourceRatios(TypedDict):
    """Histograms over `edges`: [positive, negative] advantages."""

    learner: int
    source: int
    taught: list[list[int]]
    lost: list[list[int]]
    evaluated: list[int]
    lower: list[int]
    upper: list[int]
    unused: list[int]
    beyond: list[int]
    positives_are_correct: bool
    trap: str


class RatiosAnswer(TypedDict):
    learner: int
    steps: list[int]
    num_steps: int
    edges: list[float]
    band: list[BandStep]
    gate: list[GatePoint]
    sources: list[SourceRatios]


def _run(request: HttpRequest, run_id: UUID) -> tuple[Run, RunSpec]:
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    return run, recorded_spec(run)


def _state(run: Run) -> dict[str, Any]:
    return {"ended": run.is_terminal, "attempt": run.attempt, "steps": list(recorded_steps(run))}


def _recorded(run: Run, step: int) -> dict[int, int]:
    """The recorded steps, if `step` is one. Error: Http404."""
    steps = recorded_steps(run)
    if step not in steps:
        raise Http404
    return steps


@router.get(
    "/runs/{run_id}/collaboration",
    response=CollaborationAnswer,
    summary="Recorded steps, and the metrics of pairs over time",
)
def get_collaboration(request: HttpRequest, run_id: UUID) -> Any:
    """`steps`: those with recorded contributions. `timeline`: at most 120 columns of equally many steps.

    `so_far`: by agent the peers' share of |weight| and the held-out score, first and newest, as texts.
    `score_word`: what that score is called, accuracy or mean reward.
    """
    run, spec = _run(request, run_id)
    return {
        **_state(run),
        "timeline": timeline(run, spec),
        "so_far": so_far(run, recorded_steps(run)),
        "score_word": run.score_word,
    }


@router.get(
    "/runs/{run_id}/collaboration/steps", response=StepsAnswer, summary="Recorded steps, and whether it has ended"
)
def get_steps(request: HttpRequest, run_id: UUID) -> Any:
    return _state(_run(request, run_id)[0])


@router.get("/runs/{run_id}/collaboration/step", response=StepAnswer, summary="Who taught whom in one step")
def get_step(request: HttpRequest, run_id: UUID, step: Step) -> Any:
    """One step by ordered pair: outcomes of the source's rollouts, their weight, rescued and avoided prompts."""
    run, spec = _run(request, run_id)
    picture = view(spec, summary_of(run, _recorded(run, step), step), step)
    return {"step": step, **add_text_differences(run, picture, {step}), "sentences": sentences(spec, picture)}


@router.get(
    "/runs/{run_id}/collaboration/run", response=WholeRunAnswer, summary="Who taught whom in all recorded steps"
)
def get_whole_run(request: HttpRequest, run_id: UUID) -> Any:
    """The sums of all steps, in the form of one step. `done` of `of` steps are added up; repeat for the rest."""
    run, spec = _run(request, run_id)
    steps = recorded_steps(run)
    summary, done = run_summary(run, steps, BUDGET_S)
    return {"done": done, "of": len(steps), **add_text_differences(run, view(spec, summary), steps)}


@router.get(
    "/runs/{run_id}/collaboration/ratios", response=RatiosAnswer, summary="Histograms of raw s of one learner's peers"
)
def get_ratios(
    request: HttpRequest,
    run_id: UUID,
    step: Step,
    learner: Annotated[int, Query(ge=0, le=7)],
    window: Annotated[int, Query(ge=1, le=1000)] = 1,
) -> Any:
    """Histograms of the ratios in `window` recorded steps up to `step`; fewer if they have too many rows."""
    run, spec = _run(request, run_id)
    if learner >= len(spec.agents):
        raise FieldErrors.single("invalid", f"Must be below {len(spec.agents)}.", "learner")
    steps = _recorded(run, step)
    window_of_steps = window_steps(run, steps, step, window)
    return clipping(run, spec, learner, {one: steps[one] for one in window_of_steps})
