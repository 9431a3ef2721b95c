"""What a run takes on the disk: its rows, estimated from some of them, and its run directory, file by file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from django.db.models import Max, Min

from hacrl_web.runs.models import Contribution, RolloutSample, Run, TelemetryEvent
from workers.output import allocated_bytes

SAMPLED = 200
MAX_FILES = 20_000
INDEX_FACTOR = 1.3  # two indexes of a row beside it


@dataclass(frozen=True)
class DiskUse:
    """files_bytes is None where the run directory lies on another host."""

    num_rows: int
    rows_bytes: int
    files_bytes: int | None


def disk_use(run: Run) -> DiskUse:
    """Rows are counted, and weighed by the mean of some of the first and the last."""
    num_rows = rows_bytes = 0
    for model in (TelemetryEvent, RolloutSample, Contribution):
        rows: Any = model._default_manager.filter(run=run)
        count = rows.count()
        if not count:
            continue
        ends = rows.aggregate(first=Min("seq"), last=Max("seq"))
        sample = [*rows.filter(seq__gte=ends["first"]).order_by("seq").values_list()[: SAMPLED // 2]]
        sample += rows.filter(seq__lte=ends["last"]).order_by("-seq").values_list()[: SAMPLED // 2]
        num_rows += count
        rows_bytes += int(INDEX_FACTOR * count * sum(map(_row_bytes, sample)) / len(sample))
    return DiskUse(num_rows, rows_bytes, _folder_bytes(str(run.run_dir)))


def _row_bytes(row: tuple[Any, ...]) -> int:
    return sum(8 if isinstance(value, int | float) or value is None else len(str(value).encode()) for value in row)


def _folder_bytes(folder: str) -> int | None:
    """What the files below take, holes not counted, links not followed; None where there is no such folder here."""
    if not os.path.isdir(folder):
        return None
    total = seen = 0
    for place, _, names in os.walk(folder):
        for name in names:
            seen += 1
            try:
                total += allocated_bytes(os.lstat(os.path.join(place, name)))
            except OSError:  # gone meanwhile
                continue
            if seen >= MAX_FILES:
                return total
    return total
