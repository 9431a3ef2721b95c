"""The pictures of a search, as Plotly draws them: the objective over trials, and over each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hacrl_web.runs.models import Trial, TrialState
from hacrl_web.runs.variants.varied import value_text

HEIGHT = 260  # pixels of a picture
BEST, AMBER = "#2590a1", "#d08300"  # mid-tones, legible on light and dark grounds, as in the pictures of boards


def search_figures(trials: Sequence[Trial], parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Objective over trial, and each parameter against the objective.

    trials: those with a value, in order.  parameters: as the request has them, by name.
    """
    return [_over_trials(trials), *(_by_parameter(trials, *one) for one in parameters.items())] if trials else []


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
    axis = {"title": {"text": "trial"}, "tick0": 0, "dtick": max(numbers) // 10 + 1}  # whole numbers alone
    return _figure("figure-trials", "Objective over trial", [line, *_points(trials, numbers)], axis)


def _by_parameter(trials: Sequence[Trial], name: str, written: Any) -> dict[str, Any]:
    values = [trial.parameters[name] for trial in trials]
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    scale = ("log" if str(written).endswith(" log") else "linear") if is_number else "category"
    points = _points(trials, values if is_number else [value_text(value) for value in values])
    axis = {"title": {"text": name}, "type": scale, "exponentformat": "e"}
    return _figure(f"figure-parameter-{name}", f"{name} against the objective", points, axis)


def _points(trials: Sequence[Trial], places: Sequence[Any]) -> list[dict[str, Any]]:
    """One trace of completed and one of pruned trials."""
    traces = []
    for state, colour, symbol in ((TrialState.COMPLETED, BEST, "circle"), (TrialState.PRUNED, AMBER, "x")):
        some = [(place, trial) for place, trial in zip(places, trials, strict=True) if trial.state == state]
        trace = {
            "type": "scatter",
            "mode": "markers",
            "name": str(state),
            "x": [place for place, _ in some],
            "y": [trial.value for _, trial in some],
            "text": [f"trial {trial.number}" for _, trial in some],
            "marker": {"color": colour, "symbol": symbol, "size": 8},
            "hovertemplate": "%{text}: %{y:.3f} at %{x}<extra></extra>",
        }
        traces += [trace] if some else []
    return traces


def _figure(key: str, title: str, data: list[dict[str, Any]], axis: dict[str, Any]) -> dict[str, Any]:
    every = {"automargin": True, "fixedrange": True}
    layout = {
        "height": HEIGHT,
        "font": {"family": "Inter, system-ui, sans-serif", "size": 12},
        "dragmode": False,
        "showlegend": len(data) > 1,
        "legend": {"orientation": "h", "y": 1.15},
        "margin": {"l": 56, "r": 16, "t": 24, "b": 44},
        "xaxis": every | axis,
        "yaxis": {**every, "title": {"text": "objective"}},
    }
    return {"id": key, "title": title, "json": {"data": data, "layout": layout}}
