"""The columns of the list of runs: a fixed set, and any setting by its dotted path; each can be sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from django.db.models import DurationField, ExpressionWrapper, F, OrderBy
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce, Lower, Now

from hacrl_web.runs.models import Run, RunQuerySet
from hacrl_web.runs.telemetry.scores import score_benchmark, score_word
from hacrl_web.runs.workspace.query import WorkspaceQuery, is_setting
from hacrl_web.web.dotted_paths import flat
from workers.contract.spec.algorithm import BASELINE

MAX_COLUMNS = 24
MAX_OFFERED = 60  # settings
TOOK = ExpressionWrapper(Coalesce("finished_at", Now()) - F("started_at"), output_field=DurationField())


@dataclass(frozen=True)
class RunColumn:
    """order: what runs are sorted by; None if a heading does not sort."""

    name: str
    label: str
    order: Any = None
    is_number: bool = False
    is_setting: bool = False


COLUMNS = {
    column.name: column
    for column in (
        RunColumn("state", "State", F("state")),
        RunColumn("score", "Score", F("score")),
        RunColumn("gain", f"vs {BASELINE.upper()}", is_number=True),
        RunColumn("progress", "Progress", F("step")),
        RunColumn("duration", "Time", TOOK, is_number=True),
        RunColumn("algorithm", "Algorithm", F("algorithm")),
        RunColumn("seed", "Seed", F("seed"), is_number=True),
        RunColumn("agents", "Agents", F("group__name")),
        RunColumn("benchmark", "Benchmark", F("benchmark__name")),
        RunColumn("created", "Created", F("created_at")),
        RunColumn("finished", "Finished", F("finished_at")),
        RunColumn("host", "Host", F("worker_host")),
        RunColumn("tags", "Tags", F("tags")),
    )
}
NAME = RunColumn("name", "Run", Lower("name"))
DEFAULT = ("state", "progress", "score", "gain", "duration", "algorithm", "seed", "agents", "benchmark", "created")
BESIDE_PANELS = ("state", "score", "gain", "duration")  # as many as half of a page holds
# What a first click on a heading asks for: the best, longest or newest first, but names from A on.
DESCENDING_FIRST = ("score", "duration", "created", "finished", "progress")
ABSENT = object()


def run_column(name: str) -> RunColumn | None:
    """The column of this name, or of this setting."""
    if name == NAME.name:
        return NAME
    if name in COLUMNS:
        return COLUMNS[name]
    if not is_setting(name):
        return None
    path = reduce(lambda inner, key: KeyTransform(key, inner), name.split("."), F("spec"))
    return RunColumn(name, name, path, is_setting=True)


def chosen_columns(query: WorkspaceQuery) -> list[RunColumn]:
    """The columns that the address names, else the usual ones; `-` is none of them."""
    usual = DEFAULT if query.layout == "table" else BESIDE_PANELS
    names = dict.fromkeys(query.columns.split(",") if query.columns else usual)
    columns = [column for name in names if name != NAME.name and (column := run_column(name))]
    return columns[:MAX_COLUMNS]


def sorted_runs(runs: RunQuerySet, sort: str) -> RunQuerySet:
    """The runs sorted by a column, those without a value last; equal ones, and all without a sort, newest first."""
    column = run_column(sort.removeprefix("-"))
    if column is None or column.order is None:
        return runs
    order = OrderBy(column.order, descending=sort.startswith("-"), nulls_last=True)
    return runs.order_by(order, "-created_at", "-pk")


def heading(column: RunColumn, query: WorkspaceQuery, runs: Sequence[Run]) -> dict[str, Any]:
    """What a heading shows: the query that sorts by it or turns the order round, if any, and its present order.

    runs: the listed ones, for what their held-out scores are called, and on which benchmark they are.
    """
    name = column.name
    orders = (f"-{name}", name) if name in DESCENDING_FIRST else (name, f"-{name}")
    order = {name: "ascending", f"-{name}": "descending"}.get(query.sort, "")
    next_order = orders[1] if query.sort == orders[0] else orders[0]
    label, below = column.label, ""
    if name == "score":
        label, below = score_word(runs).capitalize(), f"on {score_benchmark(runs) or 'its own benchmark'}"
    link = query.encode(sort=next_order) if column.order is not None else None
    return {"label": label, "below": below, "is_number": column.is_number, "order": order, "query": link}


def setting_of(spec: Any, path: str) -> Any:
    """The stored value of a setting by its dotted path, places in lists by number; ABSENT where there is none."""
    value = spec
    for key in path.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return ABSENT
    return value


def varied_settings(runs: Sequence[Run]) -> list[str]:
    """The dotted paths of the settings in which these runs differ, by name; the run's own name is none of them."""
    sections: dict[str, dict[str, Any]] = {}
    for run in runs:
        for name, section in run.spec.items():
            sections.setdefault(name, {})[repr(section)] = section
    values: dict[str, set[str]] = {}
    for name, different in sections.items():
        for section in different.values() if len(different) > 1 else ():
            for path, value in flat(section, name):
                values.setdefault(path, set()).add(repr(value))  # 1, 1.0 and true are three values
    counts = {path: len(texts) for path, texts in values.items()}
    return sorted(path for path, count in counts.items() if count > 1 and is_setting(path))[:MAX_OFFERED]
