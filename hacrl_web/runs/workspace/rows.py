"""The rows of the workspace: runs, or groups of runs with the mean of their results; their keys and their colours."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hacrl_web.runs.models import Run, State
from hacrl_web.runs.workspace.columns import ABSENT, setting_of
from hacrl_web.runs.workspace.query import WorkspaceQuery, is_setting
from hacrl_web.web.statistics import MeanInterval, mean_interval
from workers.contract.spec.algorithm import BASELINE

NUM_SOLID = 6  # --run-0 to --run-5 of site.css
NUM_COLOURS = 2 * NUM_SOLID  # the same colours once more, dashed
SHOWN_AT_FIRST = 10
MAX_SHOWN = 60  # runs whose lines are drawn at once
MAX_GROUPED = 300
GROUP_KEYS: dict[str, tuple[str, Callable[[Run], str]]] = {  # by name: label, and a run's value in words
    "sweep": ("Sweep", lambda run: run.sweep.name if run.sweep else "no sweep"),
    "algorithm": ("Algorithm", lambda run: run.variant or run.algorithm),
    "agents": ("Agent group", lambda run: run.group.name if run.group else ", ".join(run.agent_names)),
    "benchmark": ("Benchmark", lambda run: str(run.spec.get("data", {}).get("benchmark", ""))),
    "seed": ("Seed", lambda run: f"seed {run.seed}"),
    "state": ("State", lambda run: run.state),
    "tags": ("Tags", lambda run: ", ".join(run.tag_list) or "no tag"),
}


@dataclass
class RunGroup:
    """One row: a run, or runs that are equal in what they are grouped by.

    key: in `show` and `hide` of the address.  colour: of its line, None while it is switched off.
    """

    key: str
    label: str
    runs: list[Run]
    colour: int | None = None

    @property
    def score(self) -> MeanInterval | None:
        """The mean of the newest held-out accuracies of the row's runs."""
        return mean_interval([run.score for run in self.runs if run.score is not None])

    @property
    def took_s(self) -> MeanInterval | None:
        return mean_interval([run.took_s for run in self.runs if run.took_s is not None])

    @property
    def ids(self) -> str:
        return " ".join(str(run.pk) for run in self.runs)


def with_gains(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs with `gain`: a completed run's score less that of its sweep's baseline of the same seed, in one query.

    None without one such baseline: a sweep over the baseline's own settings has several.
    """
    baselines: dict[tuple[int | None, int], dict[str, float]] = {}
    rows = Run.objects.filter(sweep__in={run.sweep_id for run in runs} - {None}, algorithm=BASELINE)
    rows = rows.filter(state=State.COMPLETED, score__isnull=False).order_by("created_at")
    for sweep, seed, variant, score in rows.values_list("sweep", "seed", "variant", "score"):
        baselines.setdefault((sweep, seed), {})[variant] = score
    for run in runs:
        scores = list(baselines.get((run.sweep_id, run.seed), {}).values())
        is_measured = run.state == State.COMPLETED and run.score is not None and run.algorithm != BASELINE
        run.gain = run.score - scores[0] if is_measured and len(scores) == 1 else None
    return runs


def with_short_names(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs with `prefix`, the words with which all listed names of its sweep begin, and `rest` of the name."""
    names: dict[int | None, list[str]] = {}
    for run in runs:
        names.setdefault(run.sweep_id, []).append(run.name)
    for run in runs:
        several = names[run.sweep_id] if run.sweep_id and len(names[run.sweep_id]) > 1 else []
        common = os.path.commonprefix(several)  # noqa: RUF071 - of texts, not of paths
        length = max(common.rfind(mark) for mark in " -_/·") + 1
        run.prefix, run.rest = (run.name[:length], run.name[length:]) if run.name[length:] else ("", run.name)
    return runs


def single_rows(runs: Sequence[Run]) -> list[RunGroup]:
    """A row for each run."""
    return [RunGroup(run.pk.hex[:8], run.name, [run]) for run in runs]


def _group(label: str) -> RunGroup:
    return RunGroup(hashlib.sha1(label.encode(), usedforsecurity=False).hexdigest()[:8], label, [])


def group_label(run: Run, keys: Sequence[str]) -> str:
    return " · ".join(_text(run, key) for key in keys)


def _text(run: Run, key: str) -> str:
    if key in GROUP_KEYS:
        return GROUP_KEYS[key][1](run)
    value = setting_of(run.spec, key)
    if value is ABSENT or value is None:
        return f"{key.rpartition('.')[2]} not set"
    return f"{key.rpartition('.')[2]} {value if isinstance(value, str) else json.dumps(value)}"


def readable_keys(query: WorkspaceQuery) -> tuple[str, ...]:
    return tuple(key for key in query.keys if key in GROUP_KEYS or is_setting(key))


def grouped(runs: Sequence[Run], keys: Sequence[str], sort: str) -> list[RunGroup]:
    """Groups in the order of their first runs; by their means where runs are sorted by accuracy or time."""
    by_label: dict[str, RunGroup] = {}
    for run in runs:
        label = group_label(run, keys)
        by_label.setdefault(label, _group(label)).runs.append(run)
    groups = list(by_label.values())
    means = {"score": lambda group: group.score, "duration": lambda group: group.took_s}
    mean = means.get(sort.removeprefix("-"))
    if mean is None:
        return groups
    sign = -1 if sort.startswith("-") else 1
    return sorted(groups, key=partial(_order, mean, sign))


def _order(mean: Callable[[RunGroup], MeanInterval | None], sign: int, group: RunGroup) -> tuple[bool, float]:
    interval = mean(group)
    return interval is None, sign * interval.mean if interval else 0.0


def shown_keys(keys: Sequence[str], query: WorkspaceQuery) -> list[str]:
    """The rows whose lines are drawn: the first ones, with those that were switched on, without those switched off."""
    on, off = query.show.split(","), query.hide.split(",")
    is_usual = {key: place < SHOWN_AT_FIRST for place, key in enumerate(keys)}
    return [key for key in keys if (is_usual[key] or key in on) and key not in off][:MAX_SHOWN]


def colours_of(keys_by_age: Sequence[str], visible: Sequence[str]) -> dict[str, int]:
    """A colour for each shown row: by its age, so that sorting changes none; the next free one where two would share.

    Solid lines first; from the seventh row on dashed ones. More rows than both share them.
    """
    colours: dict[str, int] = {}
    for place, key in enumerate(keys_by_age):
        if key not in visible:
            continue
        used = set(colours.values()) if len(colours) < NUM_COLOURS else set()
        tries = (first + (place + step) % NUM_SOLID for first in (0, NUM_SOLID) for step in range(NUM_SOLID))
        colours[key] = next(colour for colour in tries if colour not in used)
    return colours


def coloured(rows: Sequence[RunGroup], query: WorkspaceQuery) -> list[str]:
    """Gives each row its `colour`, None where its lines are switched off. Returns the keys of the shown ones."""
    keys = [row.key for row in rows]
    visible = shown_keys(keys, query)
    by_age = sorted(rows, key=lambda row: (min(run.created_at for run in row.runs), row.key))
    colours = colours_of([row.key for row in by_age], visible)
    for row in rows:
        row.colour = colours.get(row.key)
    return visible
