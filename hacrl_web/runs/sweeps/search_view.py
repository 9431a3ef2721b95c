"""A search as page and API show it: its trials with their values and objectives, the best one, and pictures."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hacrl_web.runs.models import Sweep, Trial, TrialState
from hacrl_web.runs.sweeps.search_figures import search_figures
from hacrl_web.runs.variants.importance import why_none
from hacrl_web.runs.variants.search_settings import KEY
from hacrl_web.runs.variants.varied import short_names, value_text

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
        """The state of the trial's run while that has not ended; then how the trial ended."""
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
        number = (self.sweep.importance or {}).get("trials", "")
        parts = [self.sweep.search_state, str(number), *(line.state for line in self.lines)]
        return hashlib.sha256("-".join(parts).encode()).hexdigest()[:16]

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
        """The pictures of search_figures.py; none before the first value."""
        trials = [line.trial for line in reversed(self.lines) if line.trial.value is not None]
        return search_figures(trials, self.settings["parameters"])

    @property
    def importance(self) -> dict[str, Any]:
        """`rows`: each setting with its share and range, the largest first; else `missing`, why there are none."""
        importance = self.sweep.importance or {"trials": self.counts.get(TrialState.COMPLETED, 0), "shares": {}}
        rows = [{"name": name, **one} for name, one in importance["shares"].items()]
        missing = "" if rows else why_none(len(self.names), importance["trials"])
        return {"trials": importance["trials"], "missing": missing} | {
            "rows": sorted(rows, key=lambda row: -row["share"]),
        }


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
        "importance": sweep.importance,
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
