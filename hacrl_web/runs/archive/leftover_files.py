"""Removes what deleted runs leave (deletion.py): the folder, the recorded rows in batches, and at last the run's row.

A thread of the dispatcher calls it, as a large folder takes minutes. The hidden row of a run is there until nothing
else is, so the next round continues with whatever a crash has interrupted.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from contextlib import ExitStack
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction

from hacrl_web.runs.archive.deletion import folder_locks
from hacrl_web.runs.models import RECORDED_TABLES, Run

ROWS = 200  # of one transaction
RETRY_S = 60.0  # for a folder that cannot be removed
log = logging.getLogger(__name__)


class DeletedRuns:
    """Removes what deleted runs leave. A run whose folder cannot be removed waits RETRY_S; others go on."""

    def __init__(self) -> None:
        self._not_before: dict[UUID, float] = {}

    def tick(self) -> int:
        """Remove what all deleted runs have left; returns how many are gone. Errors: the database's."""
        num_gone = 0
        for run in Run._base_manager.exclude(deleted_at=None).order_by("deleted_at"):
            if time.monotonic() < self._not_before.get(run.pk, 0.0):
                continue
            try:
                remove_leftovers(run)
                num_gone += 1
                self._not_before.pop(run.pk, None)
            except (OperationalError, InterfaceError):  # the database is unreachable for all of them
                raise
            except Exception as error:
                self._not_before[run.pk] = time.monotonic() + RETRY_S
                log.warning("deleted run %s: what it left is not removed (%s); trying again", run.pk, error)
        return num_gone


def remove_leftovers(run: Run) -> None:
    """Remove a deleted run's records, folder and row. Errors: OSError; FieldErrors while a process uses the folder."""
    for table in RECORDED_TABLES:
        rows = table._base_manager.filter(run=run.pk).order_by()
        while some := list(rows.values_list("pk", flat=True)[:ROWS]):
            began = time.monotonic()
            table._base_manager.filter(pk__in=some).delete()
            time.sleep(time.monotonic() - began)  # others write meanwhile
    _remove_folder(run)
    with transaction.atomic():
        Run._base_manager.filter(pk=run.pk).exclude(deleted_at=None).delete()


def _remove_folder(run: Run) -> None:
    with ExitStack() as locks:
        for lock in folder_locks(run):
            locks.callback(os.close, lock)
        if run.run_dir.is_dir():
            shutil.rmtree(run.run_dir)
