"""What the API answers about boards."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from hacrl_web.web.schemas import Number


class BoardHead(TypedDict):
    """query: the parameters that name the board."""

    name: str
    query: str
    url: str
    benchmarks: list[str]
    num_runs: int
    is_generated: bool


class IntervalAnswer(TypedDict):
    mean: float
    half_width: float | None
    seeds: int


class ScoreAnswer(TypedDict):
    score: IntervalAnswer | None
    by_seed: dict[str, float]
    mark: str | None
    difference: IntervalAnswer | None
    verdict: str | None


class BoardLineAnswer(TypedDict):
    """agent: null for the mean over agents."""

    agent: str | None
    start: float | None
    scores: dict[str, ScoreAnswer]


class BoardColumnAnswer(TypedDict):
    title: str
    benchmarks: list[str]
    measured_by: str


class BoardRowAnswer(TypedDict):
    id: str
    algorithm: str
    told_apart_by: dict[str, Any]
    seeds_launched: int
    without_a_score: list[Any]
    lines: list[BoardLineAnswer]
    rollouts: Number | None
    tokens: Number | None
    device_hours: Number | None
    gained_per_1000_rollouts: Number | None
    facts: dict[str, Any]
    settings: dict[str, Any]
    runs: list[dict[str, Any]]


class StartAnswer(TypedDict):
    """Scores before training, of agents that began alike."""

    agents: list[str]
    seeds: list[int]
    lines: list[BoardLineAnswer]


class BoardAnswer(TypedDict):
    """reported: the paper's rows, which enter no comparison."""

    board: str
    address: str
    metric: str
    formula: str
    intervals: str
    baseline: str | None
    columns: list[BoardColumnAnswer]
    rows: list[BoardRowAnswer]
    starts: list[StartAnswer]
    reported: dict[str, Any] | None
