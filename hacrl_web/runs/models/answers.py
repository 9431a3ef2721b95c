"""A run as the API's lists show it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from typing_extensions import TypedDict

from hacrl_web.runs.models.run import Run


class RunRow(TypedDict):
    """progress: the trainer's newest progress event; sweep, group, benchmark: ids; score: the mean over its agents of
    the newest held-out answers, null before the first evaluation; score_word: what it is called, accuracy or, with
    partial credit, mean reward.
    """

    id: str
    name: str
    url: str
    algorithm: str
    variant: str
    seed: int
    state: str
    desired_state: str
    reason: str
    attempt: int
    interruptions: int
    priority: int
    retry_of: str | None
    cloned_from: str | None
    start_step: int
    step: int
    total_steps: int
    progress: dict[str, Any]
    score: float | None
    score_word: str
    sweep: int | None
    group: int | None
    benchmark: int | None
    worker_host: str
    tags: list[str]
    archived_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def run_summary_row(run: Run) -> dict[str, Any]:
    """A run as lists show it."""
    row = {
        "id": str(run.pk),
        "url": run.get_absolute_url(),
        "retry_of": str(run.retry_of_id) if run.retry_of_id else None,
        "cloned_from": str(run.cloned_from_id) if run.cloned_from_id else None,
        "sweep": run.sweep_id,
        "group": run.group_id,
        "benchmark": run.benchmark_id,
        "tags": run.tag_list,
    }
    return row | {name: getattr(run, name) for name in RunRow.__annotations__ if name not in row}
