"""Values of ended runs for lists and boards, cached in this process: what is stored of an ended run does not change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar
from uuid import UUID

from django.core.cache import caches

from hacrl_web.runs.models import Run

Value = TypeVar("Value")


def cached_by_run(
    name: str, runs: Collection[Run], read: Callable[[Collection[Run]], Mapping[UUID, Value]]
) -> dict[UUID, Value]:
    """`read` of these runs, by id, each value a copy of its own; `read` is called only with runs that are not cached.

    name: says what is read.  read: gives every run a value.
    """
    cache = caches["ended_runs"]
    keys = {
        run.pk: f"{name}:{run.pk.hex}{run.import_id}:{run.last_seq}" for run in runs if run.is_terminal and run.last_seq
    }
    hits = cache.get_many(keys.values())
    values = {pk: hits[key] for pk, key in keys.items() if key in hits}
    if missing := [run for run in runs if run.pk not in values]:
        new = read(missing)
        cache.set_many({keys[pk]: value for pk, value in new.items() if pk in keys})
        values |= new
    return values
