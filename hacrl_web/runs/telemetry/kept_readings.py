"""What lists and boards read from the events of ended runs, kept in this process' memory.

An ended run's events change only when late ones are stored, which raises its `last_seq`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar
from uuid import UUID

from django.core.cache import caches

from hacrl_web.runs.models import Run

Value = TypeVar("Value")


def kept_readings(
    name: str, runs: Collection[Run], read: Callable[[Collection[Run]], Mapping[UUID, Value]]
) -> dict[UUID, Value]:
    """`read` of these runs, by id, each value a copy of its own; only runs that are not kept are read.

    name: says what is read.  read: gives every run a value.
    """
    cache = caches["readings"]
    keys = {run.pk: f"{name}:{run.pk.hex}:{run.last_seq}" for run in runs if run.is_terminal and run.last_seq}
    hits = cache.get_many(keys.values())
    values = {pk: hits[key] for pk, key in keys.items() if key in hits}
    if missing := [run for run in runs if run.pk not in values]:
        new = read(missing)
        cache.set_many({keys[pk]: value for pk, value in new.items() if pk in keys})
        values |= new
    return values
