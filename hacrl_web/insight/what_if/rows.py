"""The recorded rows that What-if weighs again: read once, kept in memory as plain numbers, grouped by update."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from math import isclose
from operator import mul
from typing import Any
from uuid import UUID

from hacrl_web.insight.recorded_steps import segments, spread_steps
from hacrl_web.insight.rescued_prompts import OF_STEP
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.metric_series import MetricSeries, read_series
from workers.algorithms.base.contribution import float32, float32_array
from workers.algorithms.base.spec import CAPABILITY_FLOOR
from workers.contract.advantages import OverlongPenalty, RewardGroup

# About 0.2 s to read. More steps are thinned evenly.
MAX_ROWS = 40_000
MAX_STEPS = 200
MAX_WINDOW = 100
MAX_HISTORY = 1000  # steps of a capability window: RunSpec's bound
NEAR = 1e-9  # means of the same rewards differ by less, in whatever order they are added up
CACHED = 4  # ranges of steps in memory, about 5 MB each
SIDES = {"lower": -1, "none": 0, "upper": 1}
NO_PENALTY = OverlongPenalty(0, 0)
COLUMNS = (
    "step", "agent", "source", "prompt_id", "reward", "advantage", "sequence_ratio", "clip_side",
    "omega", "weight", "mini_batch", "drop_reason", "importance", "source_num_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class OutcomeCounts:
    """Rows counted by (side, sign of A); how many have a weight, and the sum of |weight|."""

    places: Counter[tuple[int, int]]
    used: int
    weight: float

    @classmethod
    def of(cls, sides: Sequence[int], signs: Sequence[int], weights: Sequence[float]) -> OutcomeCounts:
        used = len(weights) - weights.count(0.0)
        return cls(Counter(zip(sides, signs, strict=True)), used, sum(map(abs, weights)))


@dataclass
class Block:
    """Evaluated rows of one learner from one source in one update, column by column; agents by place.

    silent_*: rows of the same update that were not evaluated, because their A was 0.
    """

    step: int
    learner: int
    source: int
    mini_batch: int
    omega: float
    prompts: list[int] = field(default_factory=list)
    rewards: array[float] = field(default_factory=lambda: array("d"))
    advantages: array[float] = field(default_factory=lambda: array("d"))
    signs: list[int] = field(default_factory=list)
    ratios: array[float] = field(default_factory=lambda: array("d"))
    sides: list[int] = field(default_factory=list)
    weights: array[float] = field(default_factory=lambda: array("d"))
    importances: array[float] = field(default_factory=lambda: array("d"))
    silent_prompts: list[int] = field(default_factory=list)
    silent_rewards: array[float] = field(default_factory=lambda: array("d"))

    @property
    def is_own(self) -> bool:
        return self.learner == self.source

    def weighed(self, advantages: Sequence[float]) -> Sequence[float]:
        """Advantages times the rows' importance weights, as the loss has them."""
        return float32_array(map(mul, advantages, self.importances)) if self.is_own else advantages

    @cached_property
    def recorded_counts(self) -> OutcomeCounts:
        return OutcomeCounts.of(self.sides, self.signs, self.weights)


@dataclass(frozen=True)
class RecordedCheck:
    """How exactly the arithmetic reproduces the recorded numbers at the recorded settings.

    weights, sides: rows that are equal bit for bit, of `rows`.  worst: largest relative difference of a weight.
    capabilities: agents and steps that are equal, of `strengths`.  advantage: largest difference of a recomputed A.
    """

    rows: int
    weights: int
    sides: int
    worst: float
    strengths: int
    capabilities: int
    advantage: float


@dataclass
class Rows:
    """The rows of some steps, and the mean rewards that their capabilities come from."""

    num_agents: int
    steps: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    # (learner, source): all valid rollouts of the steps
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    omegas: dict[tuple[int, int, int], float] = field(default_factory=dict)  # (step, learner, source)
    groups: dict[int, dict[int, RewardGroup]] = field(default_factory=dict)  # by step and prompt
    quarantined: set[tuple[int, int, int]] = field(default_factory=set)  # (step, learner, source)
    means: list[tuple[array[int], array[float]]] = field(default_factory=list)  # by agent: steps, and mean rewards
    restarts: list[list[int]] = field(default_factory=list)  # by agent: steps at which its capability window restarts
    capabilities: dict[tuple[int, int], float] = field(default_factory=dict)  # as recorded, (step, agent)
    divisors: dict[tuple[int, tuple[int, ...], str], dict[int, float]] = field(default_factory=dict)  # a cache
    check: RecordedCheck | None = None  # a cache
    num_rows: int = 0
    is_thinned: bool = False  # `steps` are a part of the recorded ones, evenly spread

    def means_until(self, agent: int, step: int) -> list[float]:
        """The agent's mean rewards that can count in its capability at a step, oldest first."""
        steps, means = self.means[agent]
        stop = bisect_right(steps, step)
        begin = max((at for at in self.restarts[agent] if at <= step), default=0)
        return means[max(bisect_left(steps, begin), stop - MAX_HISTORY) : stop].tolist()


def read(run: Run, first: int, last: int, window: int, overlong: OverlongPenalty = NO_PENALTY) -> Rows:
    """The rows of the recorded steps from `first` to `last`; cached until the run records more.

    window: the run's own capability_window.  overlong: what its training added to the recorded rewards.
    """
    return _read(run.pk, run.import_id, tuple(run.agent_names), first, last, run.last_seq, window, overlong)


@lru_cache(maxsize=CACHED)
def _read(
    run_id: UUID,
    import_id: str,
    names: tuple[str, ...],
    first: int,
    last: int,
    last_seq: int,
    window: int,
    overlong: OverlongPenalty,
) -> Rows:
    run = Run.objects.only("pk").get(pk=run_id)
    places = {name: place for place, name in enumerate(names)}
    rows = Rows(len(names))
    parts = segments(run.contributions.all(), first, last)
    steps, rows.is_thinned = spread_steps(run.contributions.all(), parts, MAX_STEPS, MAX_ROWS)
    records: list[Iterable[tuple[Any, ...]]] = []
    for one in parts:
        of_attempt = run.contributions.filter(OF_STEP, attempt=one.attempt, step__range=(one.first, one.last))
        if rows.is_thinned:
            of_attempt = of_attempt.filter(step__in=[step for step in steps if one.first <= step <= one.last])
        records.append(of_attempt.order_by().values_list(*COLUMNS))
    _collect(rows, chain.from_iterable(records), places, overlong)
    if rows.steps:
        _read_capabilities(run, rows, places, window)
    return rows


def _collect(rows: Rows, records: Iterable[tuple[Any, ...]], places: dict[str, int], overlong: OverlongPenalty) -> None:
    """Collect records into blocks and reward groups. Their rewards have the overlong penalty, as in training.

    The steps are those with own rows, which record the rewards.
    """
    blocks: dict[tuple[int, int, int, int], Block] = {}
    numbers: Counter[tuple[int, int, int]] = Counter()  # (step, learner, source)
    rewards: dict[int, dict[int, dict[int, list[float]]]] = {}  # step, prompt, source
    prompts: dict[str, int] = {}
    for *place, reward, a, s, side, omega, weight, m, drop_reason, importance, length in records:
        step, agent, source, prompt_id = place
        if agent not in places or source not in places or reward is None or a is None or omega is None:
            continue
        if overlong.cache:
            reward = float32(reward + float32(overlong.of_contribution(length or 0)))
        k, j = places[agent], places[source]
        numbers[step, k, j] += 1
        prompt = prompts.setdefault(prompt_id, len(prompts))
        if k == j:
            rewards.setdefault(step, {}).setdefault(prompt, {}).setdefault(j, []).append(reward)
        rows.omegas[step, k, j] = omega
        if m is None:
            if drop_reason == "quarantined":
                rows.quarantined.add((step, k, j))
            continue
        key = (step, k, j, m)
        block = blocks.get(key)
        if block is None:
            block = blocks[key] = Block(step, k, j, m, omega)
        if s is None:
            if drop_reason is None:
                block.silent_prompts.append(prompt)
                block.silent_rewards.append(reward)
            continue
        block.prompts.append(prompt)
        block.rewards.append(reward)
        block.advantages.append(a)
        block.signs.append((a > 0) - (a < 0))
        block.ratios.append(s)
        block.sides.append(SIDES.get(side, 0))
        block.weights.append(weight or 0.0)
        block.importances.append(1.0 if importance is None else importance)
    rows.steps = sorted(rewards)
    rows.blocks = [block for block in blocks.values() if block.step in rewards]
    rows.omegas = {place: omega for place, omega in rows.omegas.items() if place[0] in rewards}
    counts: Counter[tuple[int, int]] = Counter()
    for (step, learner, source), count in sorted(numbers.items()):
        counts[learner, source] += count * (step in rewards)
    rows.counts, rows.num_rows = dict(sorted(counts.items())), counts.total()
    rows.groups = {
        step: {prompt: RewardGroup(by_source) for prompt, by_source in of_step.items()}
        for step, of_step in rewards.items()
    }


def _read_capabilities(run: Run, rows: Rows, places: dict[str, int], window: int) -> None:
    """Mean rewards by step, from the metrics, and the steps at which a capability window restarts (after an audit)."""
    first, last = rows.steps[0], rows.steps[-1]
    metrics = ("reward/mean", "capability")
    series = {one.key: one for one in read_series(run, metrics, first=first - MAX_HISTORY, last=last)}
    steps = set(rows.steps)
    for name, agent in places.items():
        rewards, recorded = (series.get((metric, name, ""), MetricSeries(metric, name)) for metric in metrics)
        means = list(rewards.points())
        strengths = dict(zip(recorded.steps, recorded.values, strict=True))
        rows.means.append((array("q", (step for step, _ in means)), array("d", (mean for _, mean in means))))
        rows.restarts.append([])
        for step, mean in means:
            recent = rows.means_until(agent, step)[-window:]
            is_alone = isclose(strengths.get(step, -1.0), max(mean, CAPABILITY_FLOOR), rel_tol=NEAR)
            if is_alone and not isclose(mean, sum(recent) / len(recent), rel_tol=NEAR):
                rows.restarts[agent].append(step)
        rows.capabilities |= {(step, agent): strengths[step] for step in steps & strengths.keys()}
