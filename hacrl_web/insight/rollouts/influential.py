"""The rollouts of a step that moved a learner most: a peer's answer beside the learner's own best one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import F
from django.db.models.functions import Abs, Length, Substr
from typing_extensions import TypedDict

from hacrl_web.insight.recorded_steps import end, segments
from hacrl_web.insight.rescued_prompts import OF_STEP, TAUGHT
from hacrl_web.insight.rollouts.turns import TextPart, best_answer, marked_parts
from hacrl_web.runs.models import Contribution, Run
from hacrl_web.web.visible import visible

MOST = 10
ROWS_READ = 60  # equal answers of a prompt count as one
MAX_TEXT = 600
Place = tuple[int, str]  # step and prompt


class OwnAnswer(TypedDict):
    """An answer of the learner to the same prompt, of `count` equal ones among its `of` rollouts."""

    parts: list[TextPart]
    reward: float | None
    count: int
    of: int


class InfluentialRollout(TypedDict):
    """What a rollout taught a learner; parts are empty where its text is no longer kept.

    seq: of the contribution, with which the Rollouts tab opens it.  count: equal answers of the source to the prompt,
    of which this one has the largest |weight|.  own: None for a learner's own rollout, or without one.
    """

    seq: int
    learner: str
    source: str
    prompt_id: str
    step: int
    weight: float
    reward: float | None
    prompt: str
    parts: list[TextPart]
    count: int
    own: OwnAnswer | None


class InfluentialAnswer(TypedDict):
    """step: the one asked for or the newest; None if no step is recorded."""

    step: int | None
    items: list[InfluentialRollout]


def most_influential(run: Run, step: int | None, *, is_shared: bool, learner: str = "") -> InfluentialAnswer:
    """At most MOST of the step's rollouts by |weight|, of the learner if one is named. is_shared: of peers alone."""
    step = end(run.contributions.all(), "-step") if step is None else step
    parts = [] if step is None else segments(run.contributions.all(), step, step)
    if not parts:
        return {"step": step, "items": []}
    rows = run.contributions.filter(OF_STEP, TAUGHT, attempt=parts[0].attempt, step=step)
    rows = rows.filter(agent=learner) if learner else rows
    rows = rows.exclude(agent=F("source")) if is_shared else rows
    taught = list(rows.order_by(Abs("weight").desc(), "seq")[:ROWS_READ])
    return {"step": step, "items": _items(taught, _answers(run, taught))}


def _answers(run: Run, taught: Sequence[Contribution]) -> dict[Place, list[dict[str, Any]]]:
    """The rollouts to the prompts of these contributions, of all agents, by step and prompt."""
    answers: dict[Place, list[dict[str, Any]]] = {}
    for step in {row.step for row in taught}:
        prompts = {row.prompt_id for row in taught}
        for part in segments(run.rollouts.all(), step, step):
            rows = run.rollouts.filter(attempt=part.attempt, step=step, prompt_id__in=prompts).order_by("seq")
            columns = {"text": Substr("completion", 1, MAX_TEXT), "question": Substr("prompt", 1, MAX_TEXT)}
            rows = rows.annotate(length=Length("completion"), **columns)
            names = ("prompt_id", "agent", "sample", "reward", "text", "length", "question")
            for row in rows.values(*names):
                answers.setdefault((step, row["prompt_id"]), []).append(row)
    return answers


def _items(taught: Sequence[Contribution], answers: dict[Place, list[dict[str, Any]]]) -> list[InfluentialRollout]:
    """The rollouts to show; equal answers of a source to a prompt count once."""
    items: dict[tuple[Any, ...], InfluentialRollout] = {}
    for row in taught:
        place = (row.step, row.prompt_id)
        of_prompt = answers.get(place, [])
        mine = next((one for one in of_prompt if (one["agent"], one["sample"]) == (row.source, row.sample)), None)
        key = (row.agent, row.source, *place, (mine and mine["text"]) or row.sample)
        if key not in items and len(items) < MOST:
            items[key] = _item(row, mine, of_prompt)
    return list(items.values())


def _item(row: Contribution, mine: dict[str, Any] | None, of_prompt: Sequence[dict[str, Any]]) -> InfluentialRollout:
    text = _text(mine) if mine else ""
    equal = sum(one["agent"] == row.source and _text(one) == text for one in of_prompt) if mine else 1
    own_rollouts = [one for one in of_prompt if one["agent"] == row.agent and row.agent != row.source]
    best = best_answer([(one["reward"], _text(one), one) for one in own_rollouts])
    own: OwnAnswer | None = None
    parts: list[TextPart] = [{"text": text, "differs": False}]
    if best:
        parts, own_parts = marked_parts(text, _text(best[0]))
        own = {"parts": own_parts, "reward": best[0]["reward"], "count": best[1], "of": len(own_rollouts)}
    return {
        "seq": row.seq,
        "learner": row.agent,
        "source": row.source,
        "prompt_id": row.prompt_id,
        "step": row.step,
        "weight": row.weight or 0.0,
        "reward": row.reward,
        "prompt": visible(mine["question"]) if mine else "",
        "parts": parts if text else [],
        "count": equal,
        "own": own if text else None,
    }


def _text(rollout: dict[str, Any]) -> str:
    """The shown text; a cut one ends with an ellipsis."""
    return visible(rollout["text"]) + ("…" if rollout["length"] > MAX_TEXT else "")
