"""Counts of deleted runs, so that what monitoring counts never falls."""

from __future__ import annotations

from django.db import models


class DeletedCount(models.Model):
    """Changes of state or faults that deleted runs had, one row for each kind (runs/live/counts.py)."""

    kind = models.CharField(max_length=24)
    from_state = models.CharField(max_length=16, blank=True)  # of changes of state, like the next
    to_state = models.CharField(max_length=16, blank=True)
    count = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "from_state", "to_state"], name="deleted_count_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.from_state} {self.to_state}: {self.count}"
