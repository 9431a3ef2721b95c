"""Stands for the package `evaluate` in the harness's process, so that no task fetches the code of a metric and runs it.

The folder is first on that process's path unless HACRL_LM_EVAL_METRIC_CODE is 1.
"""

from __future__ import annotations


def load(path: str, *_: object, **__: object) -> None:
    """Ends the process. SystemExit is no Exception: the harness catches those, and continues without the metric."""
    raise SystemExit(
        f"metric {path!r} is code that the task fetches from the hub and runs: choose another task, or let the "
        "operator allow it with HACRL_LM_EVAL_METRIC_CODE=1 on every host that trains"
    )
