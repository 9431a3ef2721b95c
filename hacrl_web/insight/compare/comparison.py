"""Several runs beside each other: one metric of each agent over an axis, a table of its best and last values, and
parallel coordinates of the settings that differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import plotly.graph_objects as go

from hacrl_web.insight.compare.lines import mean_values, run_values
from hacrl_web.insight.plotly_figures import as_json, plain_text
from hacrl_web.insight.settings_diff import ABSENT, SettingLine
from hacrl_web.runs.models import Run
from hacrl_web.runs.workspace.rows import NUM_SOLID
from workers.contract import number_format

MAX_RUNS = 20
ACCURACY = "accuracy"
MEAN = ""  # in the place of an agent: the row over all of them; an agent may be called "mean"
MAX_AXES = 10
MIN_AXES = 3  # fewer settings are read more easily from the table
MAX_LETTERS = 24
PARALLEL_HEIGHT = 340
Axis = Literal["step", "rollouts", "tokens", "time"]  # as in addresses
# Of these the lowest is best.
LOWER_IS_BETTER = ("loss", "kl", "skipped_updates", "guard_frac", "grad_norm", "completions/clipped_ratio")
LOWER_FAMILIES = ("verifier/", "audit/disagreement", "frac_reward_zero_std", "clip_ratio/", "sampling_logp_difference/")


def metric_names(runs: Iterable[Run]) -> list[str]:
    """Metrics of single agents that any of these runs has recorded, held-out accuracy first."""
    names: dict[str, None] = {}
    for run in runs:
        if run.events.filter(type="evaluation").exists():
            names[ACCURACY] = None
        for agent in run.agent_names:
            newest = run.events.filter(type="metrics", agent=agent, source="").order_by("-step", "-seq").first()
            if newest is not None:
                names |= dict.fromkeys([*newest.payload.get("ratios", {}), *newest.payload.get("values", {})])
    return sorted(names, key=lambda name: (name != ACCURACY, name != "reward/mean", name))


def lowest_is_best(metric: str) -> bool:
    return metric in LOWER_IS_BETTER or metric.startswith(LOWER_FAMILIES)


@dataclass
class CompareRow:
    """Best and last value of an agent, or of the mean of a run's agents; differences to the baseline run's same row."""

    run: Run
    place: int
    agent: str
    best: float | None = None
    best_step: int | None = None
    last: float | None = None
    last_step: int | None = None
    best_difference: float | None = None
    last_difference: float | None = None

    @property
    def is_mean(self) -> bool:
        return self.agent == MEAN

    @property
    def position(self) -> int:
        """The agent's place in its run."""
        names = self.run.agent_names
        return names.index(self.agent) if self.agent in names else 0


def _row(run: Run, place: int, agent: str, values: Mapping[int, float], lowest: bool) -> CompareRow:
    row = CompareRow(run, place, agent)
    if values:
        # The first of equals: the run that reached it earlier was better.
        row.best_step, row.best = (min if lowest else max)(values.items(), key=lambda point: point[1])
        row.last_step, row.last = list(values.items())[-1]
    return row


def comparison_table(runs: Sequence[Run], metric: str, baseline: Run, *, lowest: bool) -> list[CompareRow]:
    """For each run its mean, if it has several agents, and each agent."""
    rows: list[CompareRow] = []
    for place, run in enumerate(runs):
        values = run_values(run, {metric}, "each")
        by_agent = {name: values.get((metric, name), {}) for name in run.agent_names}
        if len(by_agent) > 1:
            rows.append(_row(run, place, MEAN, mean_values(by_agent.values()), lowest))
        rows += [_row(run, place, agent, of_agent, lowest) for agent, of_agent in by_agent.items()]
    base = {row.agent: row for row in rows if row.run.pk == baseline.pk}
    if len(baseline.agent_names) == 1:  # its one agent is its mean
        base.setdefault(MEAN, next(iter(base.values())))
    for row in rows:
        other = base.get(row.agent)
        if other is not None and row.run.pk != baseline.pk:
            row.best_difference = _difference(row.best, other.best)
            row.last_difference = _difference(row.last, other.last)
    return rows


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def result_of(rows: Iterable[CompareRow], run: Run) -> float | None:
    """A run's last value: the mean of its agents, or its one agent's."""
    return next((row.last for row in rows if row.run.pk == run.pk), None)


# ---- parallel coordinates: an upright axis for each setting that differs, the last one for the result ----------------


def is_drawable(line: SettingLine) -> bool:
    """Whether every value is a number, a switch or a short word; the run's name is no setting to compare."""
    return (
        line.path != "name"
        and line.differs
        and all(
            value is None
            or value is ABSENT
            or isinstance(value, int | float)
            or (isinstance(value, str) and len(value) <= 40)
            for value in line.values
        )
    )


def parallel_axes(lines: Sequence[SettingLine]) -> list[SettingLine]:
    """The settings to draw, numbers first."""
    fit = [line for line in lines if is_drawable(line)]
    return sorted(fit, key=lambda line: not _is_numeric(line.values))[:MAX_AXES]


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def scaled(
    values: Sequence[Any], written: Callable[[float], str] = "{:.4g}".format
) -> tuple[list[float | None], list[tuple[float, str]]]:
    """Each value's height from 0 to 1, and the marks (height, text) of the axis. Words are in alphabetical order.

    written: how a number is written.
    """
    if _is_numeric([value for value in values if value is not None]):
        numbers = [None if value is None else float(value) for value in values]
        present = [number for number in numbers if number is not None]
        if not present:
            return [None] * len(values), []
        low, high = min(present), max(present)
        span = high - low
        heights = [None if n is None else (n - low) / span if span else 0.5 for n in numbers]
        return heights, [(0.0, written(low)), (1.0, written(high))] if span else [(0.5, written(low))]
    words = [_word(value) for value in values]
    order = sorted(set(words))
    height = {word: place / (len(order) - 1) if len(order) > 1 else 0.5 for place, word in enumerate(order)}
    return [height[word] for word in words], [(height[word], word[:MAX_LETTERS]) for word in order]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def parallel_figure(
    names: Sequence[str],
    colours: Sequence[int],
    lines: Sequence[SettingLine],
    result: Sequence[float | None],
    metric: str,
) -> dict[str, Any]:
    """names, colours: of the runs, a colour of workspace/rows.py.  result: each run's last value of the metric."""
    titles = [line.path for line in lines] + [f"{metric}, last"]
    columns = [line.values for line in lines] + [tuple(result)]
    last = partial(number_format.format_metric, metric)
    placed = [*(scaled(line.values, number_format.format_learning_rate) for line in lines), scaled(result, last)]
    picture = go.Figure()
    for place, name in enumerate(names):
        texts = [f"{title}: {_word(values[place])}" for title, values in zip(titles, columns, strict=True)]
        picture.add_scatter(
            x=list(range(len(titles))),
            y=[heights[place] for heights, _ in placed],
            name=plain_text(name, 40),
            text=[plain_text(text) for text in texts],
            mode="lines+markers",
            line={"width": 2, "dash": "dash" if colours[place] >= NUM_SOLID else "solid"},
            marker={"size": 7, "symbol": colours[place]},
            meta={"run": colours[place]},  # figures.js puts its colour in
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )
    for at, (_, marks) in enumerate(placed):
        is_last = at == len(placed) - 1
        beside: dict[str, Any] = {"xanchor": "right", "xshift": -6} if is_last else {"xanchor": "left", "xshift": 6}
        picture.add_vline(x=at, line={"color": "#8b8e93", "width": 1})
        for height, text in marks:
            picture.add_annotation(
                x=at, y=height, text=plain_text(text), showarrow=False, yshift=9, font={"size": 11}, **beside
            )
    # A path breaks before its last part.
    ticks = [plain_text(re.sub(r"(.*\.)", r"\1\n", title)) for title in titles]
    return as_json(
        picture,
        height=PARALLEL_HEIGHT,
        margin={"l": 32, "r": 32, "t": 24, "b": 64},
        hovermode="closest",
        showlegend=False,
        xaxis={"tickvals": list(range(len(titles))), "ticktext": ticks, "showgrid": False, "zeroline": False,
               "range": [-0.25, len(titles) - 0.75]},
        yaxis={"visible": False, "range": [-0.08, 1.12]},
    )  # fmt: skip
