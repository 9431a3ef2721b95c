"""The importance of each setting of a search. The dispatcher computes it when trials have ended; the sweep keeps it.

`trials` is how many completed ones it rests on; `shares` has none where they are too few or all reached the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hacrl_web.runs.models import Trial, TrialState
from hacrl_web.runs.variants.search_settings import SearchSettings

MIN_TRIALS = 10  # completed; of fewer, the best quarter is one or two
NOTHING_COUNTED: dict[str, Any] = {"trials": 0, "shares": {}}


def importance_of(settings: SearchSettings, trials: Sequence[Trial]) -> dict[str, Any]:
    """The importance of each setting, as Sweep.importance stores and the API returns it."""
    completed = [trial for trial in trials if trial.state == TrialState.COMPLETED]
    shares: dict[str, tuple[float, float, float]] = {}
    if len(settings.parameters) > 1 and len(completed) >= MIN_TRIALS and len({one.value for one in completed}) > 1:
        from hacrl_web.runs.variants.optuna_study import importances  # it takes a second to load

        shares = importances(settings, completed)
    by_name = {
        name: {"share": round(share, 4), "low": round(low, 4), "high": round(high, 4)}
        for name, (share, low, high) in shares.items()
    }
    return {"trials": len(completed), "shares": by_name}


def why_none(num_parameters: int, num_completed: int) -> str:
    """The sentence in place of importances."""
    if num_parameters < 2:
        return "Importance compares settings: this search varies one."
    if num_completed < MIN_TRIALS:
        return f"Importance needs {MIN_TRIALS} completed trials: there are {num_completed} so far."
    return "All completed trials reached the same objective: no setting mattered."
