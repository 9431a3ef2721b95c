"""The evaluations of a run, by benchmark, agent and step: estimates, slices, and their curve.

They are read from the evaluation events, one for each agent, benchmark and step; the latest attempt of a step wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import plotly.graph_objects as go

from hacrl_web.insight.plotly_figures import LEGEND_BELOW, as_json, plain_text
from hacrl_web.runs.models import Run
from workers.contract.sample_estimators import formula
from workers.contract.verifier_kinds import score_word

MAX_LEGEND = 24  # characters of a name in the picture; the table has it in full


@dataclass(frozen=True)
class EvaluationPoint:
    """One evaluation of one agent. value: avg@k.  slices: [correct, scored] by name; empty in old versions."""

    step: int
    value: float | None
    correct: int
    asked: int
    unscorable: int
    num_samples: int
    estimates: dict[str, float]
    slices: dict[str, list[int | float]]  # sum of rewards, scored samples
    questions: str
    verifier: str

    @classmethod
    def of(cls, step: int, payload: dict[str, Any]) -> EvaluationPoint:
        count = int(payload.get("num_samples") or 1)
        value = payload.get("value")
        estimates = {name: number for name, number in (payload.get("estimates") or {}).items() if number is not None}
        return cls(
            step=step,
            value=value,
            correct=int(payload.get("correct") or 0),
            asked=int(payload.get("asked") or 0),
            unscorable=int(payload.get("unscorable") or 0),
            num_samples=count,
            estimates=({} if value is None else {f"avg@{count}": value}) | estimates,
            slices=payload.get("slices") or {},
            questions=str(payload.get("questions") or ""),
            verifier=str(payload.get("verifier") or ""),
        )


@dataclass
class AgentEvaluations:
    """One agent's evaluations on one benchmark, by step."""

    name: str
    position: int
    points: list[EvaluationPoint]

    def at(self, step: int | None) -> EvaluationPoint | None:
        return next((point for point in self.points if point.step == step), None)

    @property
    def first(self) -> EvaluationPoint | None:
        return self.points[0] if self.points else None

    @property
    def last(self) -> EvaluationPoint | None:
        return self.points[-1] if self.points else None

    @property
    def best(self) -> EvaluationPoint | None:
        """The first of the highest."""
        numbers = [point for point in self.points if point.value is not None]
        return max(numbers, key=lambda point: point.value or 0.0) if numbers else None


@dataclass
class BenchmarkEvaluations:
    """All evaluations of a run on one benchmark. is_own: the run's own, not a further one.

    score_word: what its avg@k is called, accuracy or, where the verifier gives partial credit, mean reward.
    """

    name: str
    is_own: bool
    score_word: str
    agents: list[AgentEvaluations]

    @cached_property
    def steps(self) -> list[int]:
        return sorted({point.step for agent in self.agents for point in agent.points})

    def estimate_names(self, step: int | None) -> list[dict[str, str]]:
        """The estimates of a step, each with its formula. With one sample a question, equal ones once."""
        points = [point for agent in self.agents if (point := agent.at(step))]
        names = list(dict.fromkeys(name for point in points for name in point.estimates))
        if all(point.num_samples == 1 for point in points):
            first = names[:1]
            names = first + [
                name
                for name in names[1:]
                if any(one.estimates.get(name) != one.estimates.get(first[0]) for one in points)
            ]
        return [{"name": name, "formula": formula(name)} for name in names]


def evaluation_summary(run: Run) -> list[BenchmarkEvaluations]:
    """The evaluations by benchmark, the run's own first; benchmarks without one yet are left out."""
    rows = run.events.filter(type="evaluation", step__isnull=False).order_by("attempt", "seq")
    latest: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    for agent, step, payload in rows.values_list("agent", "step", "payload").iterator(chunk_size=500):
        name = str(payload.get("benchmark", ""))
        latest.setdefault(name, {}).setdefault(agent, {})[step or 0] = payload
    further = run.further_benchmarks
    benchmarks = []
    for name in sorted(latest, key=lambda name: name in further):
        by_agent = latest[name]
        agents = [
            AgentEvaluations(agent, place, [EvaluationPoint.of(*item) for item in sorted(by_agent[agent].items())])
            for place, agent in enumerate(run.agent_names)
            if agent in by_agent
        ]
        if agents:
            word = score_word(point.verifier for agent in agents for point in agent.points)
            benchmarks.append(BenchmarkEvaluations(name, name not in further, word, agents))
    return benchmarks


def curve(benchmark: BenchmarkEvaluations) -> dict[str, Any] | None:
    """The Plotly figure of avg@k over the steps, a line for each agent; None for a single step."""
    if len(benchmark.steps) < 2:
        return None
    figure = go.Figure(layout={"hovermode": "x"})
    last = benchmark.agents[0].last
    title = f"{benchmark.score_word}, avg@{last.num_samples}" if last else benchmark.score_word
    for agent in benchmark.agents:
        figure.add_scatter(
            x=[point.step for point in agent.points],
            y=[point.value for point in agent.points],
            name=plain_text(agent.name, MAX_LEGEND),
            mode="lines+markers",
            meta={"place": agent.position},
            hovertemplate="%{y:.3g}",
        )
    return as_json(
        figure,
        showlegend=True,
        legend=LEGEND_BELOW,
        xaxis={"title": {"text": "step", "standoff": 4}},
        yaxis={"title": {"text": title}, "range": [0, 1.02]},
    )
