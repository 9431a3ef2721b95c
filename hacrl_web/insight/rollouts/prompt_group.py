"""One prompt of one step: the rollouts of all agents side by side, and the weight of each for each learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models.functions import Length, Substr

from hacrl_web.insight.rescued_prompts import OF_STEP
from hacrl_web.insight.rollouts.search import RolloutHit, read_rewards
from hacrl_web.insight.rollouts.turns import ShownTurn, TextPart, best_answer, marked_parts, shown_turns
from hacrl_web.insight.rollouts.waterfall import LearnerContribution, Waterfall, equation, waterfalls
from hacrl_web.runs.models import Run
from hacrl_web.web.visible import visible
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract.spec.run import RunSpec

MAX_TEXT = 4000  # characters of a rollout; the page loads the rest on request
MAX_PROMPT = 8000
PER_AGENT = 16  # different answers of an agent on the page


@dataclass
class Card:
    """Equal answers of an agent to the prompt; `row` is the selected one or the first, `samples` are all.

    penalty: what training added to the reward; None if the run has no such penalty.
    """

    row: dict[str, Any]
    text: str
    is_cut: bool
    is_selected: bool
    contributions: list[LearnerContribution]
    samples: list[int]
    penalty: float | None = None

    @property
    def rewards(self) -> dict[str, float]:
        """The rewards by name, if several make the total."""
        return read_rewards(self.row["rewards"]) or {}

    @property
    def turns(self) -> list[ShownTurn]:
        """The turns with an environment; `text` is the last of them."""
        return shown_turns(self.row["turns"], MAX_TEXT)

    @property
    def penalty_size(self) -> float:
        return abs(self.penalty or 0.0)

    @property
    def training_reward(self) -> float:
        """The reward of which advantages are computed."""
        return float(self.row["reward"]) + (self.penalty or 0.0)


@dataclass
class AgentColumn:
    """One agent's rollouts of the prompt."""

    agent: str
    position: int
    cards: list[Card] = field(default_factory=list)
    num_more: int = 0


@dataclass(frozen=True)
class Comparison:
    """The selected answer beside the learner's own best one, of `num_own` rollouts."""

    source: AgentColumn
    card: Card
    parts: list[TextPart]
    learner: AgentColumn
    own: Card
    own_parts: list[TextPart]
    num_own: int


@dataclass
class PromptGroup:
    """A prompt of a step, in the latest attempt of that step."""

    step: int
    prompt_id: str
    prompt: str
    is_prompt_cut: bool
    has_texts: bool
    answer: str
    columns: list[AgentColumn]
    selected: Card | None
    waterfalls: list[Waterfall]
    comparison: Comparison | None


def group_of(run: Run, spec: RunSpec, hit: RolloutHit) -> PromptGroup | None:
    """The prompt group of a rollout, with the rollout selected; None if its step is not recorded."""
    agents, step, rule, overlong = run.agent_names, hit.step, spec.rule, spec.overlong
    place = {"attempt": hit.attempt, "step": step, "prompt_id": hit.prompt_id}
    rows = list(
        run.rollouts.filter(**place, agent__in=agents)
        .order_by("sample", "seq")
        .annotate(
            text=Substr("completion", 1, MAX_TEXT),
            length=Length("completion"),
            shown_prompt=Substr("prompt", 1, MAX_PROMPT),
            prompt_length=Length("prompt"),
            shown_answer=Substr("answer", 1, 200),
        )
        .values("seq", "agent", "sample", "reward", "finish_reason", "num_tokens", "text", "length",
                "shown_prompt", "prompt_length", "shown_answer", "rewards", "turns")
    )  # fmt: skip
    if not rows:
        return None
    contributions = _contributions(run, rule, place, agents)
    columns = [AgentColumn(agent, position) for position, agent in enumerate(agents)]
    selected = None
    for row in rows:
        column = columns[agents.index(row["agent"])]
        is_selected = (row["agent"], row["sample"]) == (hit.agent, hit.sample)
        of_card = contributions.get((row["agent"], row["sample"]), [])
        card = next((one for one in column.cards if _are_equal(one.row, row)), None)
        if card:
            card.samples.append(row["sample"])
            card.contributions += of_card
            card.row = row if is_selected else card.row
        elif len(column.cards) >= PER_AGENT and not is_selected:
            column.num_more += 1
            continue
        else:
            is_penalised = overlong.cache > 0 and row["reward"] is not None
            penalty = overlong.of(row["num_tokens"]) if is_penalised else None
            is_cut = row["length"] > MAX_TEXT
            card = Card(row, visible(row["text"]), is_cut, is_selected, [*of_card], [row["sample"]], penalty)
            column.cards.append(card)
        if is_selected:
            card.is_selected, selected = True, card
    head = rows[0]
    return PromptGroup(
        step=step,
        prompt_id=hit.prompt_id,
        prompt=visible(head["shown_prompt"]),
        is_prompt_cut=head["prompt_length"] > MAX_PROMPT,
        has_texts=bool(head["prompt_length"]),  # a recorded prompt is never empty; deleting old texts empties it
        answer=visible(head["shown_answer"]),
        columns=[column for column in columns if column.cards],
        selected=selected,
        waterfalls=waterfalls(rule, contributions.get((hit.agent, hit.sample), [])) if selected else [],
        comparison=_comparison(columns, selected, hit, contributions.get((hit.agent, hit.sample), []))
        if selected
        else None,
    )


def _are_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rollouts of an agent count as the same answer; long ones are not compared, nor are deleted texts."""
    names = ("text", "reward", "num_tokens", "finish_reason", "turns")
    return 0 < one["length"] <= MAX_TEXT and all(one[name] == other[name] for name in names)


def _comparison(
    columns: Sequence[AgentColumn], selected: Card, hit: RolloutHit, contributions: Sequence[LearnerContribution]
) -> Comparison | None:
    """The comparison with the hit's learner, else with the peer that it moved most, else with the first peer."""
    peers = {column.agent: column for column in columns if column.agent != hit.agent and column.cards}
    if not peers or not selected.text:
        return None
    by_weight = sorted(contributions, key=lambda one: -abs(one.row.weight or 0.0))
    learners = [hit.taught.learner if hit.taught else "", *(one.learner for one in by_weight), *peers]
    column = peers[next(name for name in learners if name in peers)]
    best = best_answer([(card.row["reward"], card.text, card) for card in column.cards for _ in card.samples])
    if not best:
        return None
    parts, own_parts = marked_parts(selected.text, best[0].text)
    return Comparison(
        source=next(one for one in columns if one.agent == hit.agent),
        card=selected,
        parts=parts,
        learner=column,
        own=best[0],
        own_parts=own_parts,
        num_own=sum(len(card.samples) for card in column.cards) + column.num_more,
    )


def _contributions(
    run: Run, rule: AlgorithmSpec, place: dict[str, Any], agents: Sequence[str]
) -> dict[tuple[str, int], list[LearnerContribution]]:
    """The contributions by source and sample, in the order of the learners."""
    by_rollout: dict[tuple[str, int], list[LearnerContribution]] = {}
    of_prompt = run.contributions.filter(agent__in=agents, source__in=agents, prompt_id=place["prompt_id"])
    rows = of_prompt.filter(OF_STEP, attempt=place["attempt"], step=place["step"]).order_by("seq")
    for row in sorted(rows, key=lambda row: agents.index(row.agent)):
        contribution = LearnerContribution(row.agent, agents.index(row.agent), row, equation(rule, row))
        by_rollout.setdefault((row.source, row.sample), []).append(contribution)
    return by_rollout
