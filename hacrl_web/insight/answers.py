"""The API's answers about what a run recorded: one type for each tab's numbers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NotRequired

from typing_extensions import TypedDict

from hacrl_web.web.schemas import Number


class LineAnswer(TypedDict):
    """A line in buckets, on the steps of `grids[grid]`; low and high where a bucket has more than one step."""

    metric: str
    agent: str
    source: str
    grid: int
    last: list[float | None]
    low: NotRequired[list[float | None]]
    high: NotRequired[list[float | None]]


class BandAnswer(LineAnswer):
    """Over the runs that differ only in the seed."""

    seeds: list[int]


class PositionsAnswer(TypedDict):
    """The steps' positions on another x axis."""

    steps: list[int]
    values: list[Number | None]


class BucketsAnswer(TypedDict):
    """Lines of the requested metrics from step `first` to `last`; a bucket is `width` steps."""

    run: str
    seq: int
    first: int
    last: int
    width: int
    lines: list[LineAnswer]
    bands: list[BandAnswer]
    grids: list[list[int]]
    x: NotRequired[PositionsAnswer]


class PastEvent(TypedDict):
    seq: int
    attempt: int
    type: str
    step: int | None
    agent: str
    source: str
    time: float
    payload: dict[str, Any]


class HistoryAnswer(TypedDict):
    run: str
    seq: int
    events: list[PastEvent]


class TimelineItem(TypedDict):
    at: float
    order: int
    kind: str
    what: str
    detail: str
    attempt: int | None
    step: int | None
    state: str
    agent: str
    level: str


class TimelineAnswer(TypedDict):
    """`next` goes into `before`."""

    items: list[TimelineItem]
    next: float | None


class SettingAnswer(TypedDict):
    """One setting in each run: null and `is_there` false where a run has no such setting."""

    path: str
    values: list[Any]
    is_there: list[bool]
    differs: bool


class ConfigAnswer(TypedDict):
    runs: list[str]
    lines: list[SettingAnswer]


class SystemBucket(TypedDict):
    """Consecutive steps, first to last: sums over them, and the highest memory."""

    first: int
    last: int
    seconds: float
    phase_s: dict[str, float]
    tokens: int
    rollouts: int
    resident_bytes: int | None
    device_peak_bytes: int | None


class AttemptAnswer(TypedDict):
    number: int
    started_at: datetime | None
    from_step: int | None
    device: str
    host: str
    versions: dict[str, Any]
    last_step: int | None
    ending: str


class SystemAnswer(TypedDict):
    buckets: list[SystemBucket]
    attempts: list[AttemptAnswer]


class CheckpointAgent(TypedDict):
    name: str
    position: int
    num_files: int
    size_bytes: int
    accuracy: float | None
    proposed: str


class CheckpointAnswer(TypedDict):
    step: int
    size_bytes: int
    num_files: int
    agents: list[CheckpointAgent]
    checked: str
    damage: str
    accuracy: float | None
    is_newest: bool
    is_best: bool


class CheckpointsAnswer(TypedDict):
    """is_here: whether this host holds the run's folder."""

    is_here: bool
    host: str
    num_removed: int
    items: list[CheckpointAnswer]
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


class StepsAnswer(TypedDict):
    """Recorded steps of the newest attempt."""

    ended: bool
    attempt: int
    steps: list[int]


class PairLine(TypedDict):
    """A line in buckets; low and high where a bucket has more than one step."""

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


class AgentSums(TypedDict):
    name: str
    rollouts: int
    tokens: int
    verified: int
    verified_tokens: int
    right: int


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
    positives_are_right: bool
    prompts: int
    rescue: list[Number]
    warn: list[Number]
    omega: float | None
    capability: float | None
    source_capability: float | None
    clamped: bool
    not_heard: int


class SentenceAnswer(TypedDict):
    kind: str
    text: str
    learner: NotRequired[str]
    source: NotRequired[str]
    lesson: NotRequired[str]


class StepAnswer(TypedDict):
    step: int
    agents: list[AgentSums]
    pairs: list[PairSumsAnswer]
    sentences: list[SentenceAnswer]


class WholeRunAnswer(TypedDict):
    """done: how many of the `of` steps are added up; ask again until they are equal."""

    done: int
    of: int
    agents: list[AgentSums]
    pairs: list[PairSumsAnswer]


class BandStep(TypedDict):
    """The band after m updates; m is null where it is the same for all."""

    m: int | None
    low: float
    high: float


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
    positives_are_right: bool
    trap: str


class RatiosAnswer(TypedDict):
    learner: int
    steps: list[int]
    num_steps: int
    edges: list[float]
    band: list[BandStep]
    sources: list[SourceRatios]


class ComparedLine(TypedDict):
    """run: its place among the runs."""

    run: int
    agent: str
    x: list[Number]
    y: list[float | None]


class ComparedLines(TypedDict):
    metric: str
    x: str
    lines: list[ComparedLine]


class ComparedRun(TypedDict):
    id: str
    name: str
    algorithm: str
    seed: int


class ComparedRow(TypedDict):
    """agent: null for the mean over agents."""

    run: str
    agent: str | None
    best: float | None
    best_step: int | None
    last: float | None
    last_step: int | None
    best_difference: float | None
    last_difference: float | None


class ComparisonAnswer(TypedDict):
    metric: str
    metrics: list[str]
    baseline: str
    runs: list[ComparedRun]
    rows: list[ComparedRow]
    differing: list[SettingAnswer]


class EvaluationPointAnswer(TypedDict):
    step: int
    value: float | None
    correct: int
    asked: int
    unscorable: int
    num_samples: int
    estimates: dict[str, float]
    slices: dict[str, list[int]]
    questions: str
    verifier: str


class EvaluatedAgent(TypedDict):
    name: str
    points: list[EvaluationPointAnswer]


class EvaluatedBenchmark(TypedDict):
    name: str
    is_own: bool
    agents: list[EvaluatedAgent]


class EvaluationsAnswer(TypedDict):
    benchmarks: list[EvaluatedBenchmark]


class TaughtAnswer(TypedDict):
    learner: str
    advantage: float | None
    sequence_ratio: float | None
    clip_side: str
    weight: float | None
    drop_reason: str | None


class RolloutHit(TypedDict):
    step: int
    seq: int
    attempt: int
    prompt_id: str
    sample: int
    agent: str
    reward: float | None
    num_tokens: int | None
    taught: TaughtAnswer | None


class RolloutsAnswer(TypedDict):
    """`next` and `previous` go into `after` and `before`; stopped_at: the step where a long search stopped."""

    items: list[RolloutHit]
    next: str | None
    previous: str | None
    stopped_at: int | None


class RolloutTextAnswer(TypedDict):
    """completion: at most `shown` of `length` characters, where `shown` was asked for."""

    step: int
    agent: str
    prompt_id: str
    sample: int
    prompt: str
    completion: str
    answer: str
    reward: float | None
    length: NotRequired[int]
    shown: NotRequired[int]


class RolloutOrNone(TypedDict):
    rollout: RolloutTextAnswer | None


class OutcomeAnswer(TypedDict):
    """Rows of one pair: positive, negative: [evaluated, lower, upper, used] by sign of the advantage."""

    rows: int
    evaluated: int
    lower: int
    upper: int
    used: int
    unknown: int
    weight: Number
    positive: list[int]
    negative: list[int]
    omega: float | None
    omega_range: list[float] | None
    share: float | None


class HypotheticalPair(TypedDict):
    learner: int
    source: int
    recorded: OutcomeAnswer
    hypothetical: OutcomeAnswer


class BoundsAnswer(TypedDict):
    first: float
    last: float
    delta_step: float


class RecordedCheckAnswer(TypedDict):
    """How many rows, sides and capabilities come out bit for bit at the recorded settings."""

    rows: int
    weights: int
    sides: int
    worst: float
    strengths: int
    capabilities: int
    advantage: float


class WhatIfAnswer(TypedDict):
    """nothing: why there is nothing to weigh, else empty."""

    nothing: str
    steps: int
    pairs: list[HypotheticalPair]
    agents: NotRequired[list[str]]
    first: NotRequired[int | None]
    last: NotRequired[int | None]
    is_thinned: NotRequired[bool]
    rows: NotRequired[int]
    bounds: NotRequired[list[BoundsAnswer]]
    cautions: NotRequired[list[str]]
    check: NotRequired[RecordedCheckAnswer | None]
    clone: NotRequired[str]
    elapsed_ms: NotRequired[float]
