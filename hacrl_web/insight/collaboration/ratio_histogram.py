"""Histograms of the raw sequence ratios of one learner's peers, on a log axis, with the stepwise clip band."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from hacrl_web.insight.collaboration.collaboration import short, trap
from hacrl_web.insight.rescued_prompts import OF_STEP
from hacrl_web.runs.models import Run
from workers.algorithms.base.contribution import float32
from workers.contract.advantages import REWARD_MAX
from workers.contract.spec.run import RunSpec

BINS = 44
GATE_POINTS = 200
MOST_ROWS = 60_000  # of one learner: as many as a request can count in time
MOST_BOUNDS = 32
OUTSIDE = 0.01  # share of the ratios beyond either end of the axis; the first and last bar count them

Row = tuple[str, float, float, float, str, float | None]  # source, s, A, weight, clip side, reward


def bounds(spec: RunSpec) -> list[dict[str, Any]]:
    """The clip band of shared rollouts, {m, low, high}: by update m of a step; m is None for a constant band.

    At most MOST_BOUNDS updates, evenly spread, always with the first and the last.
    """
    rule = spec.rule
    band = rule.shared_band(0) if len(spec.agents) > 1 else None
    if band is None:
        return []
    if not rule.band_moves:
        return [{"m": None, "low": band[0], "high": band[1]}]
    first, end = spec.updates_per_block, spec.num_blocks * spec.updates_per_block
    updates = list(range(first, end))
    if len(updates) > MOST_BOUNDS:
        stride = (len(updates) - 1) / (MOST_BOUNDS - 1)
        updates = [updates[round(place * stride)] for place in range(MOST_BOUNDS)]
    bands = [(m, rule.shared_band(m) or band) for m in updates]
    return [{"m": m, "low": low, "high": high} for m, (low, high) in bands]


def gate_curve(spec: RunSpec, ends: Sequence[float]) -> list[dict[str, float]]:
    """What a shared rollout of |A| = 1 and omega = 1 weighs by its ratio, {s, positive, negative}.

    positive, negative: |weight| by the sign of A, at the first update of shared rollouts.
    """
    rule = spec.rule
    if not rule.shares_rollouts or rule.is_recorded_only or len(spec.agents) == 1 or not ends:
        return []
    grain = (ends[-1] / ends[0]) ** (1 / GATE_POINTS)
    ratios = [float32(ends[0] * grain**place) for place in range(GATE_POINTS + 1)]
    by_sign = [rule.weigh(False, spec.updates_per_block, ratios, [sign] * len(ratios)).weights for sign in (1.0, -1.0)]
    return [
        {"s": s, "positive": abs(positive), "negative": abs(negative)}
        for s, positive, negative in zip(ratios, *by_sign, strict=True)
    ]


def window_steps(run: Run, steps: dict[int, int], step: int, window: int) -> list[int]:
    """The last `window` recorded steps up to `step`, fewer if they have more than MOST_ROWS.

    steps: from recorded_steps.
    """
    result: list[int] = []
    per_learner = 0.0
    for one in sorted((one for one in steps if one <= step), reverse=True)[:window]:
        per_learner += run.contributions.filter(attempt=steps[one], step=one).count() / len(run.agent_names)
        if result and per_learner > MOST_ROWS:
            break
        result.append(one)
    return result[::-1]


def shared_rows(run: Run, steps: dict[int, int], learner: str) -> list[Row]:
    """Evaluated rollouts of peers with an advantage, without replayed ones. steps: step -> attempt, in order."""
    rows = run.contributions.filter(OF_STEP, agent=learner, step__gte=min(steps), step__lte=max(steps))
    rows = rows.exclude(source=learner).filter(sequence_ratio__isnull=False).order_by()
    columns = ("step", "attempt", "source", "sequence_ratio", "advantage", "weight", "clip_side", "reward")
    return [
        (source, ratio, advantage, weight or 0.0, side, reward)
        for step, attempt, source, ratio, advantage, weight, side, reward in rows.values_list(*columns)
        if ratio and advantage and attempt == steps.get(step)
    ]


def edges(ratios: Sequence[float], lowest_bound: float | None) -> list[float]:
    """Edges of the bars, evenly spaced on the log axis. 1 is always an edge, and the axis holds the whole band."""
    logs = sorted(math.log(ratio) for ratio in ratios)
    if not logs:
        return []
    cut = int(OUTSIDE * len(logs))
    low, high = min(logs[cut], 0.0), max(logs[-1 - cut], 0.0)
    if lowest_bound:
        low = min(low, math.log(lowest_bound))
    if high - low < 1e-6:
        low, high = low - 1e-4, high + 1e-4
    width = (high - low) / BINS
    # The margin: rounding must not add an empty bar, since a ratio on the last edge belongs to the last bar.
    first, last = math.floor(low / width + 1e-9), math.ceil(high / width - 1e-9)
    return [math.exp(place * width) for place in range(first, last + 1)]


def count_ratios(rows: Sequence[Row], ends: Sequence[float]) -> dict[str, Any]:
    """Bars and counts of one pair, in lists of two: positive and negative advantages.

    taught, lost: [sign][bar].  lower, upper: outside the band.  beyond: outside the axis, in the first and last bar.
    """
    num_bars = max(0, len(ends) - 1)
    taught, lost = ([[0] * num_bars, [0] * num_bars] for _ in range(2))
    evaluated, lower, upper, unused, beyond = [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]
    are_correct = True
    for _, ratio, advantage, weight, side, reward in rows:
        sign = 0 if advantage > 0 else 1
        place = min(max(bisect_right(ends, ratio) - 1, 0), num_bars - 1)
        beyond[0] += ratio < ends[0]
        beyond[1] += ratio > ends[-1]
        (taught if weight else lost)[sign][place] += 1
        evaluated[sign] += 1
        unused[sign] += not weight
        lower[sign] += side == "lower"
        upper[sign] += side == "upper"
        are_correct &= sign == 1 or (reward is not None and reward >= REWARD_MAX)
    return {
        "taught": taught,
        "lost": lost,
        "evaluated": evaluated,
        "lower": lower,
        "upper": upper,
        "unused": unused,
        "beyond": beyond,
        "positives_are_correct": are_correct,
    }


def clipping(run: Run, spec: RunSpec, learner: int, steps: dict[int, int]) -> dict[str, Any]:
    """The histograms of one learner, one for each peer, on one axis. steps: as for shared_rows, not empty."""
    names = [agent.name for agent in spec.agents]
    labels = [short(name) for name in names]
    rows = shared_rows(run, steps, names[learner])
    band = bounds(spec)
    ends = edges([row[1] for row in rows], min((bound["low"] for bound in band), default=None))
    of_source: dict[str, list[Row]] = {}
    for row in rows:
        of_source.setdefault(row[0], []).append(row)
    sources = []
    for place, name in enumerate(names):
        if place != learner:
            counted = {"learner": learner, "source": place, **count_ratios(of_source.get(name, []), ends)}
            sources.append(counted | {"trap": trap(spec, labels, counted)})
    return {
        "learner": learner,
        "steps": [min(steps), max(steps)],
        "num_steps": len(steps),
        "edges": ends,
        "band": band,
        "gate": gate_curve(spec, ends),
        "sources": sources,
    }
