"""The API's answers about runs, sweeps, their events and their hosts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Schema
from ninja.orm import create_schema
from typing_extensions import TypedDict

from hacrl_web.runs.models import Contribution
from hacrl_web.web.schemas import EVERY_FIELD


class RunRow(TypedDict):
    """progress: the trainer's newest progress event; sweep, group, benchmark: ids; score: the mean over its agents of
    the newest held-out answers, null before the first evaluation; score_word: what it is called, accuracy or, with
    partial credit, mean reward.
    """

    id: str
    name: str
    url: str
    algorithm: str
    variant: str
    seed: int
    state: str
    desired_state: str
    reason: str
    attempt: int
    interruptions: int
    priority: int
    retry_of: str | None
    cloned_from: str | None
    start_step: int
    step: int
    total_steps: int
    progress: dict[str, Any]
    score: float | None
    score_word: str
    sweep: int | None
    group: int | None
    benchmark: int | None
    worker_host: str
    tags: list[str]
    archived_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class PlacedRun(RunRow):
    """place_in_queue: from 1; null where it does not wait."""

    place_in_queue: int | None


class StatusChangeAnswer(TypedDict):
    from_state: str
    to_state: str
    attempt: int
    reason: str
    at: datetime


class RunAnswer(PlacedRun):
    """spec: the settings, as in docs/settings.md.  origin: of an imported run, who imported it when; else empty.

    network_functions: reward functions that could use the network, so that the run cannot be repeated exactly.
    """

    notes: str
    origin: dict[str, Any]
    network_functions: list[str]
    spec: dict[str, Any]
    last_seq: int
    status_changes: list[StatusChangeAnswer]


class Sections(TypedDict, total=False):
    """Each section holds its settings."""

    algorithm: dict[str, Any]
    rewards: dict[str, Any]
    rollout: dict[str, Any]
    training: dict[str, Any]
    evaluation: dict[str, Any]
    checkpoint: dict[str, Any]
    compute: dict[str, Any]
    telemetry: dict[str, Any]
    confirm: list[str]
    agents: dict[str, dict[str, Any]]


class RequestAnswer(Sections, total=False):
    """The body of POST /runs that would launch the run again."""

    name: str
    group: int | None
    benchmark: int | None
    seed: int
    cloned_from: str
    draft: bool
    data: dict[str, Any]


class SweepRequest(Sections, total=False):
    """The body of POST /sweeps that would launch the sweep again, with the settings that it names."""

    name: str
    group: int
    benchmark: int
    algorithms: list[str]
    ablations: list[str]
    seeds: list[int]
    grid: dict[str, list[Any]]
    search: dict[str, Any]


class HostAnswer(TypedDict):
    name: str
    last_seen: datetime | None
    clock_offset_s: float | None
    schema: str
    versions: dict[str, str]
    devices: list[dict[str, Any]]
    drain: str
    drain_reason: str


class SeriesAnswer(TypedDict):
    """One line: values by step; null where a ratio has no denominator or a number is not finite."""

    metric: str
    agent: str
    source: str
    steps: list[int]
    values: list[float | None]


class RunSeriesAnswer(TypedDict):
    run: str
    last_seq: int
    series: list[SeriesAnswer]


class _Row(Schema):
    model_config = EVERY_FIELD


ContributionAnswer = create_schema(Contribution, name="ContributionAnswer", base_class=_Row, exclude=["id", "run"])


class ContributionsAnswer(TypedDict):
    """What each rollout of `source` taught the learner `agent`."""

    items: list[ContributionAnswer]  # type: ignore[valid-type]
    count: int
    next: str | None
    run: str
    step: int


class EventAnswer(TypedDict):
    """payload: as docs/metrics.md has it, by type."""

    seq: int
    attempt: int
    type: str
    step: int | None
    agent: str
    source: str
    time: float
    payload: dict[str, Any]


class StatusFrame(TypedDict):
    op: str
    run: str
    state: str
    desired_state: str
    step: int
    total_steps: int
    attempt: int
    progress: dict[str, Any]
    reason: str


class EventsAnswer(TypedDict):
    """The socket's frame: events after `prev` up to `seq`, of `last_seq` in all."""

    op: str
    run: str
    prev: int
    seq: int
    events: list[EventAnswer]
    status: StatusFrame
    last_seq: int


class LogLineAnswer(TypedDict):
    seq: int
    attempt: int
    at: datetime
    level: str
    text: str


class OutputAnswer(TypedDict):
    """lines: null where the output is not on this host."""

    lines: list[str] | None


class SearchResult(TypedDict):
    kind: str
    name: str
    url: str


class SearchAnswer(TypedDict):
    found: list[SearchResult]


class SweepHead(TypedDict):
    id: int
    name: str
    url: str
    created_at: datetime
    is_draft: bool


class SweepRow(SweepHead):
    """request: the body of POST /sweeps."""

    request: dict[str, Any]


class SweepProgress(TypedDict):
    runs: int
    counts: dict[str, int]
    steps: int
    total_steps: int
    eta_s: float | None
    is_finished: bool


class SweepChange(SweepHead):
    """changed: ids of the runs that the act changed."""

    changed: list[str]
    progress: SweepProgress


class VariantAnswer(TypedDict):
    """runs: by seed; null where the run was deleted."""

    label: str
    runs: list[str | None]


class TrialAnswer(TypedDict):
    """number: from 0.  value: the objective, null without one.  run: its id; null where it was refused or deleted."""

    number: int
    state: str
    parameters: dict[str, Any]
    value: float | None
    pruned_step: int | None
    reason: str
    run: str | None


class ImportanceShare(TypedDict):
    """share: of 1 over all settings.  low, high: nine in ten resamplings of the trials lie between them."""

    share: float
    low: float
    high: float


class Importance(TypedDict):
    """What separates the best quarter of the completed trials from the others (PED-ANOVA).

    trials: completed ones.  shares: by setting; none for fewer than 10 trials, or where all reached the same.
    """

    trials: int
    shares: dict[str, ImportanceShare]


class SweepSearchAnswer(TypedDict):
    """state: searching, paused, finished or stopped.  best: number of the best trial.  counts: trials by state.

    importance: null before the dispatcher has counted.
    """

    state: str
    reason: str
    best: int | None
    counts: dict[str, int]
    importance: Importance | None
    trials: list[TrialAnswer]


class SweepAnswer(SweepRow):
    """search: null for a sweep of a grid."""

    search: SweepSearchAnswer | None
    is_finished: bool
    progress: SweepProgress
    seeds: list[int]
    variants: list[VariantAnswer]
    runs: list[RunRow]
