"""Numbers for the alert rules: of one step's metrics, and of a series of steps. Imports no Django."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from hacrl_web.runs.telemetry.metric_series import number_or_none
from workers.contract.spec.run import RunSpec

Payload = dict[str, Any]  # of a metrics event: {"values": {...}, "ratios": {...}}
Value = float | list[float]
Point = list[Any]  # [step, value]

START_POINTS = 5  # the start of a series is the median of this many first points
KL_WINDOW = 10
KL_FLOOR = 0.01  # nats: smaller values count as this, so that noise near 0 makes no jump
SPLIT_WINDOW = 10
PLATEAU_WINDOW = 30
SOLVED = 0.9
NEAR_CAP = 0.9
ROUNDING = 1e-6  # of a sum of shares of tokens


@dataclass(frozen=True)
class Facts:
    """The settings of a run that the rules depend on."""

    agents: tuple[str, ...]
    shares: bool
    uses_omega: bool  # otherwise the capability ratio is recorded, but weights nothing
    can_trap: bool  # in the other clip modes a clipped rollout can still teach
    max_completion_length: int
    has_engine: bool = False  # rollouts may come from a copy of the weights, not from the trainer's own

    @classmethod
    def of(cls, spec: RunSpec) -> Facts:
        shares = spec.algorithm.shares_rollouts and len(spec.agents) > 1
        return cls(
            agents=tuple(agent.name for agent in spec.agents),
            shares=shares,
            uses_omega=shares and spec.algorithm.uses_omega,
            can_trap=spec.algorithm.drops_outside_band,
            max_completion_length=spec.rollout.max_completion_length,
            has_engine=spec.rollout.engine != "transformers",
        )


@dataclass(frozen=True)
class StepMetrics:
    """The metrics of one step, by (agent, source); source is empty for an agent's own."""

    metrics: dict[tuple[str, str], Payload]

    def value(self, metric: str, agent: str, source: str = "") -> float | None:
        return number_or_none(self.metrics.get((agent, source), {}).get("values", {}).get(metric))

    def ratio(self, metric: str, agent: str, source: str = "") -> tuple[float, float] | None:
        """(sum, count); None if the count is 0 or missing."""
        parts = self.metrics.get((agent, source), {}).get("ratios", {}).get(metric)
        total, count = map(number_or_none, parts or (None, None))
        return (total, count) if total is not None and count else None

    def share(self, metric: str, agent: str, source: str = "") -> float | None:
        parts = self.ratio(metric, agent, source)
        return parts[0] / parts[1] if parts else None


@dataclass(frozen=True)
class Series:
    """The first points of a series and its last ones, oldest first."""

    start: Sequence[Point]
    last: Sequence[Point]

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self.last]


# ---- numbers of one step --------------------------------------------------------------------------------------------


def peer_share(step: StepMetrics, facts: Facts, agent: str) -> float | None:
    """Share of peers' rollouts among those whose gradient is not zero: the off-diagonal part of the matrix."""
    own = step.ratio("clip_ratio/low_mean", agent)
    high = step.ratio("clip_ratio/high_mean", agent)
    from_peers = [step.ratio("used_frac", agent, source) for source in facts.agents if source != agent]
    if not any(from_peers):
        return None
    own_used = own[1] - own[0] - (high[0] if high else 0.0) if own else 0.0
    used = sum(parts[0] for parts in from_peers if parts)
    return used / (used + own_used) if used + own_used > 0 else None


def uniform_share(step: StepMetrics, facts: Facts, agent: str) -> float | None:
    """Share of prompts on which all rewards are equal; the rewards of all agents if rollouts are shared."""
    return step.share("frac_reward_zero_std_joint" if facts.shares else "frac_reward_zero_std", agent)


def has_weight(step: StepMetrics, facts: Facts, agent: str) -> float | None:
    """1 if the gradient of any rollout flowed in this step, an own one or a peer's; else 0."""
    ratios = step.metrics.get((agent, ""), {}).get("ratios", {})
    own = [list(map(number_or_none, ratios.get(f"clip_ratio/{side}_mean") or (None, None))) for side in ("low", "high")]
    (low, count), (high, _) = own
    if low is None or high is None or count is None:
        return None
    from_peers = [step.ratio("used_frac", agent, source) for source in others(facts, agent)]
    used = count - low - high + sum(parts[0] for parts in from_peers if parts)
    return float(used > ROUNDING)


def unscorable_share(step: StepMetrics, facts: Facts, agent: str) -> float | None:
    """Share of the agent's own rollouts that the verifier could not score."""
    lost = step.value("verifier/unscorable", agent)
    scored = step.metrics.get((agent, ""), {}).get("ratios", {}).get("reward/mean")
    if lost is None or not scored or lost + scored[1] <= 0:
        return None
    return lost / (lost + scored[1])


def rewards(step: StepMetrics, facts: Facts, agent: str) -> list[float] | None:
    """The agent's mean reward, then its peers' in their order."""
    values = [step.share("reward/mean", name) for name in (agent, *others(facts, agent))]
    numbers = [value for value in values if value is not None]
    return numbers if len(numbers) == len(values) > 1 else None


def others(facts: Facts, agent: str) -> list[str]:
    return [name for name in facts.agents if name != agent]


# ---- a number of a series -------------------------------------------------------------------------------------------


def latest(series: Series, facts: Facts) -> float | None:
    return float(series.values[-1])


def over_start(series: Series, facts: Facts) -> float | None:
    """The last value, divided by the start."""
    start = _start(series)
    return series.values[-1] / start if start else None


def length_over_limit(series: Series, facts: Facts) -> float | None:
    """The last length divided by its limit: twice the start, or 0.9 of the maximum if that is less.

    None if the start is already near the maximum.
    """
    start = _start(series)
    cap = NEAR_CAP * facts.max_completion_length
    if not start or start > 0.75 * cap:
        return None
    return float(series.values[-1] / min(2 * start, cap))


def over_recent(series: Series, facts: Facts) -> float | None:
    """The last value divided by the median of the ten before it, at least KL_FLOOR; None with fewer than five."""
    before = series.values[-1 - KL_WINDOW : -1]
    if len(before) < KL_WINDOW // 2:
        return None
    return float(series.values[-1] / max(median(before), KL_FLOOR))


def split(series: Series, facts: Facts) -> float | None:
    """The smaller of the agent's fall and its best peer's rise, over the last ten steps and the ten before."""
    changes = reward_changes(series)
    return min(-changes[0], max(changes[1:])) if changes else None


def reward_changes(series: Series) -> list[float] | None:
    """Change of each mean reward, the agent's own first, from the ten steps before to the last ten."""
    values = series.values[-2 * SPLIT_WINDOW :]
    if len(values) < 2 * SPLIT_WINDOW:
        return None
    older, newer = values[:SPLIT_WINDOW], values[SPLIT_WINDOW:]
    return [
        fmean(value[place] for value in newer) - fmean(value[place] for value in older)
        for place in range(len(values[-1]))
    ]


def gain(series: Series, facts: Facts) -> float | None:
    """Mean reward of the last 30 steps minus that of the 30 before; 1 if the task counts as solved."""
    values = series.values[-2 * PLATEAU_WINDOW :]
    if len(values) < 2 * PLATEAU_WINDOW:
        return None
    newer = fmean(values[PLATEAU_WINDOW:])
    return 1.0 if newer >= SOLVED else newer - fmean(values[:PLATEAU_WINDOW])


def _start(series: Series) -> float | None:
    """The median of the first five values; None if it is 0, or without a value after them."""
    if len(series.start) < START_POINTS or series.last[-1][0] <= series.start[-1][0]:
        return None
    return float(median(value for _, value in series.start)) or None
