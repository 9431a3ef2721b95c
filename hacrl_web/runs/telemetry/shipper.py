"""The shipper copies a run's events from the spool to the database, each exactly once, in order.

The byte offset and the last seq are columns of the run, written in the transaction that stores the events and fenced by
the attempt: a crash at any moment repeats and loses no event, and a supervisor without the lease writes nothing.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, QuerySet

from hacrl_web.runs.messages.pubsub import publish_update
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.scores import score_of
from hacrl_web.runs.telemetry.spool_reader import SpoolBatch, SpoolReader
from hacrl_web.runs.telemetry.tables import REFUSED, Record, Rows, insert, integer, rows_if_valid

Fence = Callable[[UUID, int], QuerySet[Run]]
Prepared = tuple[SpoolBatch, Rows | None]  # rows: None if one of the records cannot be stored


class LeaseLost(RuntimeError):
    """Another attempt owns the run, or the run has ended: this supervisor may write nothing more."""

    def __init__(self, attempt: int) -> None:
        super().__init__(f"attempt {attempt} no longer owns it")


def reads_ahead() -> bool:
    """True if the database works in a process of its own: storing is mostly waiting then."""
    return connection.vendor == "postgresql"


class Shipper:
    """Copies one run's spool to the database for one attempt, full files first.

    fence: the run as a query of one row while this shipper may write.
    """

    def __init__(self, run_id: UUID, run_dir: Path, attempt: int, fence: Fence | None = None) -> None:
        self.fence = fence or Run.objects.held_by
        self.run_id = run_id
        self.attempt = attempt
        run = Run.objects.only("last_seq", "spool_offset").get(pk=run_id)
        self.last_seq = run.last_seq  # stored
        self.reader = SpoolReader(run_id, run_dir, run.last_seq, run.spool_offset)
        self._unstored: Prepared | None = None
        self._ahead: Prepared | None = None  # read while the one before it was stored
        self.has_more = True  # False: the last call of ship() read nothing new

    def ship(self) -> SpoolBatch:
        """Store the next batch of events. Errors: LeaseLost, and the database's, after which to try again."""
        # A batch that could not be stored is kept: if read again, its steps would seem to go back (Admission).
        if self._unstored is None:
            self._unstored, self._ahead = self._ahead or self._prepare(), None
        batch, rows = self._unstored
        self.has_more = bool(batch.lines) or batch.full_file is not None
        if batch.lines:
            self._store(batch, rows)
        self._unstored = None
        if batch.records:
            self.last_seq = batch.records[-1]["seq"]
            publish_update(self.run_id)
        self.reader.remove_files(max(self.last_seq, batch.full_file[0] if batch.full_file else 0))
        return batch

    def _prepare(self) -> Prepared:
        batch = self.reader.read()
        return batch, rows_if_valid(self.run_id, batch.records)

    def _store(self, batch: SpoolBatch, rows: Rows | None) -> None:
        """Write the batch. A server's part of that is waiting, in which the next batch of a backlog is prepared."""
        if self._ahead is not None or not batch.is_full or not reads_ahead():
            self._write(batch, rows)
            return
        with ThreadPoolExecutor(1) as other_thread:
            preparation = other_thread.submit(self._prepare)
            try:
                self._write(batch, rows)
            finally:
                ahead = preparation.result()
                self._ahead = ahead if ahead[0].lines else None  # an empty one would be old news at the next call

    def _write(self, batch: SpoolBatch, rows: Rows | None) -> None:
        columns: dict[str, Any] = {"spool_offset": batch.offset}
        types = {record["type"] for record in batch.records}
        if batch.records:
            columns |= {"last_seq": batch.records[-1]["seq"], **_progress(batch.records), **_measures(batch.records)}
        with transaction.atomic():
            # The fence first: it also locks the row against other writers for the rest of the transaction.
            if not self.fence(self.run_id, self.attempt).update(**columns):
                raise LeaseLost(self.attempt)
            if num_refused := insert(self.run_id, batch.records, rows):
                Run.objects.filter(pk=self.run_id).update(num_refused=F("num_refused") + num_refused)
            if "evaluation" in types:
                Run.objects.filter(pk=self.run_id).update(score=score_of(Run.objects.get(pk=self.run_id)))


def _measures(records: Sequence[Record]) -> dict[str, Any]:
    """Columns of the run for monitoring: the lag of this batch, and its faults beside those before."""
    columns: dict[str, Any] = {}
    written_at = records[0].get("time")
    if type(written_at) is float:  # insert() reports others
        columns["telemetry_lag_s"] = max(0.0, time.time() - written_at)
    logs = [record for record in records if record["type"] == "log"]
    for name, number in (
        ("num_incidents", sum(record.get("incident") is not None for record in logs)),
        ("num_refused", sum(REFUSED in record for record in logs)),
    ):
        if number:
            columns[name] = F(name) + number
    return columns


def _progress(records: Sequence[Record]) -> dict[str, Any]:
    """Columns of the run, from the last valid `progress` and `started` records."""
    columns: dict[str, Any] = {}
    for record in records:
        if record["type"] in ("progress", "started"):
            with contextlib.suppress(ValueError, TypeError, OverflowError):  # insert() reports what it refuses
                values: dict[str, Any] = {name: integer(record.get(name)) for name in ("step", "total_steps")}
                if record["type"] == "progress":
                    progress = {k: v for k, v in record.items() if k not in ("seq", "attempt", "time", "type")}
                    json.dumps(progress, allow_nan=False)  # 1e400 is read as infinity, which no JSON column takes
                    values["progress"] = progress
                columns |= values
    return columns
