"""What the run pages read: the latest rollouts with what they taught, and the plotted numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

from django.db.models import Max, QuerySet

from hacrl_web.runs.chunks import columns
from hacrl_web.runs.models import Contribution, Run

PROMPTS_SHOWN = 6


@dataclass
class ShownRollout:
    """One recorded rollout and one contribution for each learner, in the order of the agents."""

    row: Any
    position: int
    contributions: list[dict[str, Any]]


@dataclass
class ShownPrompt:
    """A prompt with everything that the agents answered to it in one step."""

    prompt_id: str
    prompt: str
    answer: str
    rollouts: list[ShownRollout] = field(default_factory=list)


def rollout_steps(run: Run) -> list[int]:
    """Steps with recorded rollouts, in order."""
    return sorted(run.rollouts.order_by().values_list("step", flat=True).distinct())


def contributions_of_step(run: Run, step: int) -> QuerySet[Contribution]:
    """What each rollout of a step taught each learner, in the latest attempt that made the step."""
    rows = run.contributions.filter(step=step)
    return rows.filter(attempt=rows.aggregate(Max("attempt"))["attempt__max"] or 0)


def prompts_of_step(run: Run, step: int) -> list[ShownPrompt]:
    """The first prompts of a step, of the latest attempt that made it, with what each rollout taught each learner."""
    attempt = run.rollouts.filter(step=step).aggregate(Max("attempt"))["attempt__max"]
    rows = run.rollouts.filter(step=step, attempt=attempt)
    chosen = list(dict.fromkeys(rows.order_by("seq").values_list("prompt_id", flat=True)))[:PROMPTS_SHOWN]
    taught: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in contributions_of_step(run, step).filter(attempt=attempt, prompt_id__in=chosen):
        taught.setdefault((row.source, row.prompt_id, row.sample), {})[row.agent] = row
    agents = run.agent_names
    cross_weight = run.spec["algorithm"].get("cross_weight", 1.0)
    prompts: dict[str, ShownPrompt] = {}
    for row in rows.filter(prompt_id__in=chosen).order_by("seq"):
        prompt = prompts.setdefault(row.prompt_id, ShownPrompt(row.prompt_id, row.prompt, row.answer))
        by_learner = taught.get((row.agent, row.prompt_id, row.sample), {})
        learners = [
            {
                "agent": name,
                "position": place,
                "row": by_learner[name],
                "equation": weight_equation(by_learner[name], cross_weight),
            }
            for place, name in enumerate(agents)
            if name in by_learner
        ]
        position = agents.index(row.agent) if row.agent in agents else 0
        prompt.rollouts.append(ShownRollout(row, position, learners))
    for prompt in prompts.values():
        prompt.rollouts.sort(key=lambda shown: (shown.position, shown.row.sample))
    return list(prompts.values())


def weight_equation(row: Contribution, cross_weight: float) -> str:
    """A shared rollout's weight with its numbers put in, Eqs. (10) and (12); empty where another rule made it."""
    if row.alpha is None or row.clipped_ratio is None or row.omega is None or row.advantage is None:
        return ""
    if not row.weight:
        return "no gradient flows: outside the band, or A is 0"
    factor = f" · {cross_weight:.3g}" if cross_weight != 1 else ""
    return (
        f"c^(1+α) · ω · A{' · cross_weight' if factor else ''} = "
        f"{row.clipped_ratio:.3g}^{1 + row.alpha:.3g} · {row.omega:.3g} · {row.advantage:.3g}{factor}"
    )


def metric_rows(run: Run) -> Iterator[tuple[int | None, str, str, str, float | None]]:
    """(step, agent, source, metric, value) of every metric and evaluation; the highest attempt of a step wins."""
    rows = columns(run)
    lines = [(key, iter(zip(column.steps, column.values, strict=True))) for key, column in rows.items()]
    waiting = [next(line) for _, line in lines]
    for step in sorted({step for column in rows.values() for step in column.steps}):
        for number, ((metric, agent, source), line) in enumerate(lines):
            while waiting[number][0] == step:
                value = waiting[number][1]
                yield step, agent, source, metric, None if isnan(value) else value
                waiting[number] = next(line, (-1, nan))


def csv_cell(value: Any) -> str:
    """A cell that no spreadsheet runs as a formula; numbers stay numbers."""
    if value is None:
        return ""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return str(value)
