"""The pictures of a search, as Plotly draws them: the objective over trials, all settings at once, and each alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from hacrl_web.runs.grids.varied import value_text
from hacrl_web.runs.models import Trial, TrialState

HEIGHT = 260  # pixels of a picture
# Mid-tones, legible on light and dark grounds, as in the pictures of boards.
BEST, OTHER, AMBER = "#2590a1", "#8b8e93", "#d08300"
LOWEST = "#b9bcc1"  # the line of the lowest objective, between which and BEST the others are
PARALLEL_HEIGHT = 340
MAX_LETTERS = 18  # of a choice beside its axis


def search_figures(trials: Sequence[Trial], parameters: Mapping[str, Any], best: Trial | None) -> list[dict[str, Any]]:
    """Objective over trial, parallel coordinates, and each parameter against the objective.

    trials: those with a value, in order.  parameters: as the request has them, by name.
    """
    if not trials:
        return []
    log_names = {name for name, written in parameters.items() if str(written).endswith(" log")}
    by_parameter = [_by_parameter(trials, name, name in log_names, number) for number, name in enumerate(parameters)]
    return [_over_trials(trials), _parallel(trials, list(parameters), log_names, best), *by_parameter]


def _parallel(trials: Sequence[Trial], names: Sequence[str], log_names: set[str], best: Trial | None) -> dict[str, Any]:
    """A line for each trial over an upright axis for each parameter; the last axis is the objective."""
    columns = [[trial.parameters[name] for trial in trials] for name in names]
    axes = [_heights(values, is_log=name in log_names) for name, values in zip(names, columns, strict=True)]
    objective = _heights([trial.value for trial in trials])
    axes.append(objective)
    titles = [*names, "objective"]
    order = sorted(range(len(trials)), key=lambda place: (trials[place] is best, objective[0][place]))
    data: list[dict[str, Any]] = []
    for place in order:  # the best is drawn last, above the others
        trial, is_best = trials[place], trials[place] is best
        values = [*(value_text(column[place]) for column in columns), f"{trial.value:.3f}"]
        line = {"color": BEST if is_best else _between(objective[0][place]), "width": 4 if is_best else 1.5}
        if trial.state == TrialState.PRUNED:
            line |= {"color": AMBER, "dash": "dot"}
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"trial {trial.number}{', best' if is_best else ''}",
                "x": list(range(len(titles))),
                "y": [heights[place] for heights, _ in axes],
                "text": [escape(f"{title}: {value}", quote=False) for title, value in zip(titles, values, strict=True)],
                "line": line,
                "marker": {"color": line["color"], "size": 5},
                "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
            }
        )
    figure = _figure(data, "", "linear")
    figure["layout"] |= {
        "height": PARALLEL_HEIGHT,
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 32, "r": 32, "t": 24, "b": 64},
        "shapes": [_axis_line(at) for at in range(len(titles))],
        "annotations": [
            _mark(at, height, text, is_last=at == len(titles) - 1)
            for at, (_, marks) in enumerate(axes)
            for height, text in marks
        ],
    }
    figure["layout"]["xaxis"] = {
        "automargin": True,
        "fixedrange": True,
        "tickvals": list(range(len(titles))),
        "ticktext": [escape(title, quote=False).replace(".", ".<br>") for title in titles],
        "showgrid": False,
        "zeroline": False,
        "range": [-0.25, len(titles) - 0.75],
    }
    figure["layout"]["yaxis"] = {"visible": False, "fixedrange": True, "range": [-0.08, 1.12]}
    return {"id": "figure-parallel", "title": "All settings and the objective", "json": figure, "is_wide": True}


def _heights(values: Sequence[Any], *, is_log: bool = False) -> tuple[list[float], list[tuple[float, str]]]:
    """Each value's height from 0 to 1, and the marks (height, text) of its axis. Choices are in alphabetical order."""
    if not _are_numbers(values):
        words = sorted({value_text(value) for value in values})
        height = {word: place / (len(words) - 1) if len(words) > 1 else 0.5 for place, word in enumerate(words)}
        marks = [(height[word], word[:MAX_LETTERS]) for word in words]
        return [height[value_text(value)] for value in values], marks
    numbers = [math.log(value) if is_log else float(value) for value in values]
    low, high = min(numbers), max(numbers)
    if low == high:
        return [0.5] * len(numbers), [(0.5, f"{values[0]:.4g}")]
    marks = [(0.0, f"{min(values):.4g}"), (1.0, f"{max(values):.4g}")]
    return [(number - low) / (high - low) for number in numbers], marks


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _between(share: float) -> str:
    """A colour from LOWEST at 0 to BEST at 1."""
    ends = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (LOWEST, BEST)]
    return "#" + "".join(f"{round(low + share * (high - low)):02x}" for low, high in zip(*ends, strict=True))


def _axis_line(at: int) -> dict[str, Any]:
    line = {"color": OTHER, "width": 1}
    return {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line, "layer": "below"}


def _mark(at: int, height: float, text: str, *, is_last: bool) -> dict[str, Any]:
    side = {"xanchor": "right", "xshift": -6} if is_last else {"xanchor": "left", "xshift": 6}
    mark = {"x": at, "y": height, "text": escape(text, quote=False), "showarrow": False, "yshift": 9}
    return mark | side | {"font": {"size": 11}}


def _over_trials(trials: Sequence[Trial]) -> dict[str, Any]:
    """The objective of each trial, and the best so far."""
    best: list[float | None] = []
    for trial in trials:
        highest = best[-1] if best else None
        is_better = trial.state == TrialState.COMPLETED and (highest is None or trial.value > highest)
        best.append(trial.value if is_better else highest)
    numbers = [trial.number for trial in trials]
    line: dict[str, Any] = {"type": "scatter", "mode": "lines", "name": "best so far", "x": numbers, "y": best}
    line["line"] = {"shape": "hv", "color": BEST, "width": 1.5}
    figure = _figure([line, *_points(trials, numbers)], "trial", "linear")
    figure["layout"]["xaxis"] |= {"tick0": 0, "dtick": max(numbers) // 10 + 1}  # whole numbers alone
    return {"id": "figure-trials", "title": "Objective over trial", "json": figure}


def _by_parameter(trials: Sequence[Trial], name: str, is_log: bool, number: int) -> dict[str, Any]:
    values = [trial.parameters[name] for trial in trials]
    is_number = _are_numbers(values)
    places = values if is_number else [value_text(value) for value in values]
    scale = ("log" if is_log else "linear") if is_number else "category"
    figure = _figure(_points(trials, places), name, scale)
    return {"id": f"figure-parameter-{number}", "title": f"{name} against the objective", "json": figure}


def _points(trials: Sequence[Trial], places: Sequence[Any]) -> list[dict[str, Any]]:
    """One trace of completed and one of pruned trials."""
    traces = []
    for state, colour, symbol in ((TrialState.COMPLETED, BEST, "circle"), (TrialState.PRUNED, AMBER, "x")):
        some = [(place, trial) for place, trial in zip(places, trials, strict=True) if trial.state == state]
        trace: dict[str, Any] = {"type": "scatter", "mode": "markers", "name": str(state)}
        trace["x"] = [place for place, _ in some]
        trace |= {"y": [trial.value for _, trial in some], "text": [f"trial {trial.number}" for _, trial in some]}
        trace["marker"] = {"color": colour, "symbol": symbol, "size": 8}
        trace["hovertemplate"] = "%{text}: %{y:.3f} at %{x}<extra></extra>"
        traces.append(trace)
    return [trace for trace in traces if trace["x"]]


def _figure(data: list[dict[str, Any]], title: str, scale: str) -> dict[str, Any]:
    axis = {"automargin": True, "fixedrange": True}
    layout = {
        "height": HEIGHT,
        "font": {"family": "Inter, system-ui, sans-serif", "size": 12},
        "dragmode": False,
        "showlegend": len(data) > 1,
        "legend": {"orientation": "h", "y": 1.15},
        "margin": {"l": 56, "r": 16, "t": 24, "b": 44},
        "xaxis": {**axis, "title": {"text": title}, "type": scale, "exponentformat": "e"},
        "yaxis": {**axis, "title": {"text": "objective"}},
    }
    return {"data": data, "layout": layout}
