"""A search as page and API show it: its trials with their values and objectives, the best one, and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hacrl_web.runs.grids.varied import short_names, value_text
from hacrl_web.runs.models import Sweep, Trial, TrialState
from hacrl_web.runs.trials.search_settings import KEY

HEIGHT = 260  # pixels of a picture
# Mid-tones, legible on light and dark grounds, as in the pictures of boards.
BEST, OTHER, AMBER = "#2590a1", "#8b8e93", "#d08300"
METHOD_NAMES = {"random": "random search", "optuna": "Optuna (TPE)"}
PRUNER_NAMES = {"none": "no pruner", "median": "median pruner", "halving": "successive halving"}


@dataclass(frozen=True)
class TrialLine:
    """One row of the table. cells: the text of each parameter, in the order of `SearchView.names`."""

    trial: Trial
    cells: list[str]
    is_best: bool

    @property
    def state(self) -> str:
        """Of its run while that has not ended; then how the trial ended."""
        if self.trial.state == TrialState.RUNNING and self.trial.run is not None:
            return str(self.trial.run.state)
        return str(self.trial.state)


@dataclass(frozen=True)
class SearchView:
    """names: the parameters.  lines: trials, newest first.  counts: trials by state."""

    sweep: Sweep
    settings: dict[str, Any]
    names: list[str]
    lines: list[TrialLine]
    best: Trial | None
    counts: dict[str, int]

    @property
    def version(self) -> str:
        """Changes with everything that the page shows."""
        parts = [self.sweep.search_state, *(f"{line.state[0]}{line.state[-1]}" for line in self.lines)]
        return "-".join(parts)[:2000]

    @property
    def method(self) -> str:
        return METHOD_NAMES.get(self.settings["method"], self.settings["method"])

    @property
    def pruner(self) -> str:
        return PRUNER_NAMES.get(self.settings["pruner"], self.settings["pruner"])

    @property
    def short_names(self) -> list[str]:
        return list(short_names(self.names).values())

    @property
    def figures(self) -> list[dict[str, Any]]:
        """Objective over trial, and each parameter against the objective; none before the first value."""
        trials = [line.trial for line in reversed(self.lines) if line.trial.value is not None]
        if not trials:
            return []
        log_names = {name for name in self.names if str(self.settings["parameters"][name]).endswith(" log")}
        by_parameter = [
            _by_parameter(trials, name, name in log_names, number) for number, name in enumerate(self.names)
        ]
        return [_over_trials(trials), *by_parameter]


def search_view(sweep: Sweep) -> SearchView | None:
    """The search of a sweep, in one query; None where the sweep does not search."""
    if not sweep.search_state or KEY not in sweep.request:
        return None
    settings = sweep.request[KEY]
    trials = list(sweep.trials.select_related("run").defer("run__spec").order_by("-number"))
    names = list(settings["parameters"])
    best = best_trial(trials)
    lines = [
        TrialLine(trial, [value_text(trial.parameters[name]) for name in names], is_best=trial is best)
        for trial in trials
    ]
    counts = Counter(trial.state for trial in trials)
    return SearchView(
        sweep, settings, names, lines, best, {state: counts[state] for state in TrialState.values if counts[state]}
    )


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """The completed trial of the highest objective; of equal ones the first."""
    completed = [trial for trial in trials if trial.state == TrialState.COMPLETED and trial.value is not None]
    return max(completed, key=lambda trial: (trial.value, -trial.number), default=None)


def search_answer(sweep: Sweep) -> dict[str, Any] | None:
    """The search as the API returns it: trials in order."""
    view = search_view(sweep)
    if view is None:
        return None
    return {
        "state": sweep.search_state,
        "reason": sweep.search_reason,
        "best": view.best.number if view.best else None,
        "counts": view.counts,
        "trials": [trial_answer(line.trial) for line in reversed(view.lines)],
    }


def trial_answer(trial: Trial) -> dict[str, Any]:
    """A trial as the API returns it."""
    return {
        "number": trial.number,
        "state": trial.state,
        "parameters": trial.parameters,
        "value": trial.value,
        "pruned_step": trial.pruned_step if trial.state == TrialState.PRUNED else None,
        "reason": trial.reason,
        "run": str(trial.run_id) if trial.run_id else None,
    }


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
    figure["layout"]["xaxis"]["tickformat"] = "d"
    return {"id": "figure-trials", "title": "Objective over trial", "json": figure}


def _by_parameter(trials: Sequence[Trial], name: str, is_log: bool, number: int) -> dict[str, Any]:
    values = [trial.parameters[name] for trial in trials]
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
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
