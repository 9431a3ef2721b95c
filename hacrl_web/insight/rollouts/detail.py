"""One prompt of one step, all agents side by side, and what each rollout taught each learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F
from django.db.models.functions import Length, Substr

from hacrl_web.insight.rollouts.search import Hit
from hacrl_web.insight.rollouts.waterfall import Waterfall, equation, waterfalls
from hacrl_web.runs.models import Contribution, Run
from hacrl_web.web.visible import visible
from workers.contract.spec.algorithm import AlgorithmSpec

TEXT_SHOWN = 4000  # characters of a rollout; the rest is asked for
PROMPT_SHOWN = 8000
PER_AGENT = 16  # rollouts of an agent that are drawn


@dataclass
class Lesson:
    """What a rollout taught one learner: a line of the card's table."""

    learner: str
    position: int
    row: Contribution
    equation: str


@dataclass
class Card:
    """One rollout of the prompt."""

    row: dict[str, Any]
    text: str
    is_cut: bool
    is_selected: bool
    lessons: list[Lesson]


@dataclass
class AgentColumn:
    """One agent's rollouts of the prompt."""

    agent: str
    position: int
    cards: list[Card] = field(default_factory=list)
    num_more: int = 0


@dataclass
class PromptGroup:
    """A prompt of a step, in the latest attempt that made it."""

    step: int
    prompt_id: str
    prompt: str
    is_prompt_cut: bool
    has_texts: bool
    answer: str
    columns: list[AgentColumn]
    selected: Card | None
    waterfalls: list[Waterfall]


def group_of(run: Run, rule: AlgorithmSpec, hit: Hit) -> PromptGroup | None:
    """The prompt group that a rollout belongs to, the rollout itself selected."""
    agents = run.agent_names
    place = {"attempt": hit.attempt, "step": hit.step, "prompt_id": hit.prompt_id}
    rows = list(
        run.rollouts.filter(**place, agent__in=agents)
        .order_by("sample", "seq")
        .annotate(
            text=Substr("completion", 1, TEXT_SHOWN),
            length=Length("completion"),
            shown_prompt=Substr("prompt", 1, PROMPT_SHOWN),
            prompt_length=Length("prompt"),
            shown_answer=Substr("answer", 1, 200),
        )
        .values("seq", "agent", "sample", "reward", "finish_reason", "num_tokens", "mean_logp", "text", "length",
                "shown_prompt", "prompt_length", "shown_answer", attempt_number=F("attempt"))
    )  # fmt: skip
    if not rows:
        return None
    lessons = _lessons(run, rule, place, agents)
    columns = [AgentColumn(agent, position) for position, agent in enumerate(agents)]
    selected = None
    for row in rows:
        column = columns[agents.index(row["agent"])]
        is_selected = (row["agent"], row["sample"]) == (hit.agent, hit.sample)
        if len(column.cards) >= PER_AGENT and not is_selected:
            column.num_more += 1
            continue
        text = visible(row["text"])
        card = Card(row, text, row["length"] > TEXT_SHOWN, is_selected, lessons.get((row["agent"], row["sample"]), []))
        column.cards.append(card)
        selected = card if is_selected else selected
    head = rows[0]
    return PromptGroup(
        hit.step,
        hit.prompt_id,
        visible(head["shown_prompt"]),
        head["prompt_length"] > PROMPT_SHOWN,
        bool(head["prompt_length"]),  # no recorded prompt is empty: an empty one is a text that is gone
        visible(head["shown_answer"]),
        [column for column in columns if column.cards],
        selected,
        waterfalls(rule, [(one.learner, one.position, one.row) for one in selected.lessons]) if selected else [],
    )


def _lessons(
    run: Run, rule: AlgorithmSpec, place: dict[str, Any], agents: Sequence[str]
) -> dict[tuple[str, int], list[Lesson]]:
    """By source and sample, in the order of the learners."""
    by_rollout: dict[tuple[str, int], list[Lesson]] = {}
    for row in run.contributions.filter(**place, agent__in=agents, source__in=agents).order_by("seq"):
        lesson = Lesson(row.agent, agents.index(row.agent), row, equation(rule, row))
        by_rollout.setdefault((row.source, row.sample), []).append(lesson)
    for lessons in by_rollout.values():
        lessons.sort(key=lambda one: one.position)
    return by_rollout
