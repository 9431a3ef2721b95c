"""The band over seeds: what the other runs of a sweep that differ in nothing but the seed say of the same line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from hacrl_web.insight.downsample import Buckets
from hacrl_web.insight.statistics import mean_interval
from hacrl_web.runs.models import Run

MAX_SEEDS = 16
Kind = Literal["range", "ci"]


def _settings(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.spec.items() if key not in ("name", "seed")}


def same_but_seed(run: Run) -> list[Run]:
    """The run and its siblings by seed: of its sweep, with its settings; of one seed the newest run, or the run itself.

    At most MAX_SEEDS, the lowest seeds.
    """
    if run.sweep_id is None:
        return [run]
    by_seed = {}
    siblings = Run.objects.filter(sweep_id=run.sweep_id, algorithm=run.algorithm)
    for other in siblings.order_by("created_at", "pk"):
        if _settings(other) == _settings(run):
            by_seed[other.seed] = other
    by_seed[run.seed] = run
    others = [seed for seed in sorted(by_seed) if seed != run.seed][: MAX_SEEDS - 1]
    return [by_seed[seed] for seed in sorted([run.seed, *others])]


def seed_band(lines: Sequence[Buckets], width: int, kind: Kind) -> Buckets:
    """The band over the same line of several runs, where at least two have a point; `last` is the mean.

    It is made of what each line shows, the last value of a bucket. range: the lowest and the highest of them.
    ci: the 95 % confidence interval of their mean, by Student's t.
    """
    cells: dict[int, list[tuple[int, float]]] = {}
    for line in lines:
        for step, value in zip(line.steps, line.last, strict=True):
            cells.setdefault(step // width, []).append((step, value))
    buckets = Buckets()
    for _, points in sorted(cells.items()):
        values = [value for _, value in points]
        mean = mean_interval(values)
        if mean is None or mean.low is None or mean.high is None:
            continue
        buckets.steps.append(max(step for step, _ in points))
        buckets.low.append(mean.low if kind == "ci" else min(values))
        buckets.high.append(mean.high if kind == "ci" else max(values))
        buckets.last.append(mean.mean)
    return buckets
