"""What monitoring counts of runs, deleted ones included: changes of state and faults. No count ever falls.

The counts of a run are added to those of deleted ones in the transaction that hides it, and read in one statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import CharField, Count, F, QuerySet, Sum, Value

from hacrl_web.runs.models import DeletedCount, Run, StatusChange

CHANGE = "change"
FAULTS = {"interrupted": "interruptions", "incident": "num_incidents", "refused event": "num_refused"}  # -> column
Counts = Counter[tuple[str, str, str]]  # by kind, and of changes the states before and after


def all_counts() -> Counts:
    """The counts of all runs that exist or were deleted."""
    deleted = DeletedCount.objects.order_by().values_list("kind", "from_state", "to_state", "count")
    changes, *faults = _counted(Run.objects.order_by(), StatusChange.objects.order_by())
    return _summed(deleted.union(changes, *faults, all=True))


def counts_of(run_ids: Iterable[UUID]) -> Counts:
    """The counts of these runs, whose rows are locked."""
    ids = list(run_ids)
    changes, *faults = _counted(
        Run.objects.filter(pk__in=ids).order_by(), StatusChange.objects.filter(run__in=ids).order_by()
    )
    return _summed(changes.union(*faults, all=True))


def add_deleted(counts: Counts) -> None:
    """Add to the counts of deleted runs: last in its transaction and in this order, so that no two wait in a circle."""
    for (kind, before, after), count in sorted(counts.items()):
        row, _ = DeletedCount.objects.get_or_create(kind=kind, from_state=before, to_state=after)
        DeletedCount.objects.filter(pk=row.pk).update(count=F("count") + count)


def _counted(runs: QuerySet[Run], changes: QuerySet[StatusChange]) -> list[QuerySet[Any, Any]]:
    """One query for the changes and one for each fault, of rows (kind, from, to, count)."""

    def text(value: str) -> Value:
        return Value(value, output_field=CharField())

    by_states = changes.annotate(kind=text(CHANGE)).values("kind", "from_state", "to_state")
    queries: list[QuerySet[Any, Any]] = [
        by_states.annotate(total=Count("pk")).values_list("kind", "from_state", "to_state", "total")
    ]
    for kind, column in FAULTS.items():
        by_kind = runs.annotate(kind=text(kind), none=text(""), neither=text("")).values("kind", "none", "neither")
        total = by_kind.annotate(total=Sum(column, default=0))
        queries.append(total.values_list("kind", "none", "neither", "total"))
    return queries


def _summed(rows: Iterable[tuple[str, str, str, int]]) -> Counts:
    counts: Counts = Counter()
    for kind, before, after, count in rows:
        counts[kind, before, after] += count
    return +counts
