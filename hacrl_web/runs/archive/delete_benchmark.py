"""Deleting a benchmark: what is lost, and why not now. It stands here because only this app knows who needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import transaction

from hacrl_web.registry.benchmarks.benchmarks import remove_files
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.archive.archive import SETTLED
from hacrl_web.runs.models import TERMINAL, Run
from hacrl_web.web.errors import FieldError, FieldErrors

NAMED_RUNS = 5


@dataclass(frozen=True)
class Loss:
    """What goes with a benchmark. num_ended: runs that keep their results but cannot be retried or cloned from it."""

    num_questions: int
    num_bytes: int
    num_ended: int
    needed_by: list[Run]  # runs that have not ended


def deletion_summary(benchmark: Benchmark) -> Loss:
    return Loss(
        num_questions=benchmark.num_train + benchmark.num_held_out,
        num_bytes=sum(os.path.getsize(path) for path in benchmark.paths if Path(path).is_file()),
        num_ended=Run.objects.filter(benchmark=benchmark, state__in=TERMINAL).count(),
        needed_by=_needed_by(benchmark),
    )


def _needed_by(benchmark: Benchmark) -> list[Run]:
    """Runs that have not ended and read one of its files, as their own or as a further benchmark; drafts need none."""
    paths = set(benchmark.paths)
    return [
        run
        for run in Run.objects.exclude(state__in=SETTLED)
        if run.benchmark_id == benchmark.pk or not paths.isdisjoint(_texts(run.spec))
    ]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a stored spec."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def delete_benchmark(benchmark: Benchmark) -> None:
    """Row and files. Error: FieldErrors (409) where a run that has not ended needs them."""
    with transaction.atomic():
        # Held: a run that is launched meanwhile is seen here, or refused there.
        Benchmark.objects.select_for_update(of=("self",)).get(pk=benchmark.pk)
        needed = _needed_by(benchmark)
        if needed:
            names = ", ".join(run.name for run in needed[:NAMED_RUNS]) + (" and others" if needed[NAMED_RUNS:] else "")
            one = len(needed) == 1
            who = "1 run that has not ended needs" if one else f"{len(needed)} runs that have not ended need"
            message = f"{who} this benchmark: {names}. Stop {'it' if one else 'them'} first."
            raise FieldErrors([FieldError("in_use", message, None)], 409)
        transaction.on_commit(lambda: remove_files(benchmark))
        Benchmark.objects.filter(pk=benchmark.pk).delete()
