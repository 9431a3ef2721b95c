"""What a run's evaluations found, by benchmark, agent and step: the estimates, their slices, and their curve.

Read from the evaluation events, one small row for each agent, benchmark and step; the latest attempt of a step wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import plotly.graph_objects as go

from hacrl_web.insight.plotly_figures import as_json
from hacrl_web.runs.models import Run
from workers.contract.estimators import formula

MAX_LEGEND = 24  # characters of a name in the picture; the table has it in full


@dataclass(frozen=True)
class EvaluationPoint:
    """One evaluation of one agent. `value` is avg@k; estimates of runs of older versions are empty."""

    step: int
    value: float | None
    correct: int
    asked: int
    unscorable: int
    num_samples: int
    estimates: dict[str, float]
    slices: dict[str, tuple[int, int]]
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
            estimates=estimates or ({} if value is None else {f"avg@{count}": value}),
            slices={name: (right, of) for name, (right, of) in (payload.get("slices") or {}).items()},
            questions=str(payload.get("questions") or ""),
            verifier=str(payload.get("verifier") or ""),
        )


@dataclass
class OfAgent:
    """One agent's evaluations on one benchmark, by step."""

    name: str
    position: int
    points: list[EvaluationPoint] = field(default_factory=list)

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
class OfBenchmark:
    """All evaluations of a run on one benchmark. is_own: it is what the run trains on, or was asked first."""

    name: str
    is_own: bool
    agents: list[OfAgent]

    @cached_property
    def steps(self) -> list[int]:
        return sorted({point.step for agent in self.agents for point in agent.points})

    def estimate_names(self, step: int | None) -> list[dict[str, str]]:
        """What was estimated at a step, each with its formula."""
        names: dict[str, None] = {}
        for agent in self.agents:
            if point := agent.at(step):
                names |= dict.fromkeys(point.estimates)
        return [{"name": name, "formula": formula(name)} for name in names]

    def slice_names(self, step: int | None) -> list[str]:
        return sorted({name for agent in self.agents if (point := agent.at(step)) for name in point.slices})


def evaluation_summary(run: Run) -> list[OfBenchmark]:
    """By benchmark, the run's own first; benchmarks without an evaluation yet are not there."""
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
            OfAgent(agent, place, [EvaluationPoint.of(step, by_agent[agent][step]) for step in sorted(by_agent[agent])])
            for place, agent in enumerate(run.agent_names)
            if agent in by_agent
        ]
        benchmarks.append(OfBenchmark(name, name not in further, agents))
    return benchmarks


def curve(benchmark: OfBenchmark) -> dict[str, Any] | None:
    """The picture of avg@k over the steps, a line for each agent; None of a single step."""
    if len(benchmark.steps) < 2:
        return None
    figure = go.Figure(layout={"hovermode": "x"})
    for agent in benchmark.agents:
        name = agent.name if len(agent.name) <= MAX_LEGEND else f"{agent.name[: MAX_LEGEND - 1]}…"
        figure.add_scatter(
            x=[point.step for point in agent.points],
            y=[point.value for point in agent.points],
            name=_as_text(name),
            mode="lines+markers",
            meta={"place": agent.position},
            hovertemplate="%{y:.3g}",
        )
    return as_json(
        figure,
        margin={"l": 56, "r": 24, "t": 8, "b": 40},
        showlegend=True,
        legend={"orientation": "h", "y": -0.25, "yanchor": "top", "itemclick": False, "itemdoubleclick": False},
        xaxis={"title": {"text": "step", "standoff": 4}},
        yaxis={"title": {"text": _measure(benchmark.agents)}, "range": [0, 1.02]},
    )


def _measure(agents: Sequence[OfAgent]) -> str:
    last = agents[0].last if agents else None
    return f"avg@{last.num_samples}" if last else "accuracy"


def _as_text(name: str) -> str:
    """Plotly reads a few tags in names."""
    return name.replace("&", "&amp;").replace("<", "&lt;")
