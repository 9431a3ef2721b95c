"""Trackio: a run of a project in its own database on this machine; `trackio show` draws it, `trackio sync` uploads it.

Each row carries an id of the run and its seq, which the database keeps once, with its table of rollouts.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from workers.contract.mirrored_rows import COLUMNS, TABLE, Row
from workers.mirrors.destination import Destination


def _values(row: Row) -> dict[str, Any]:
    """The values of a row, with its table as the database stores a trackio.Table."""
    values: dict[str, Any] = row.values | {"attempt": row.attempt}
    if row.rollouts:
        values[TABLE] = {
            "_type": "trackio.table",
            "_value": [dict(zip(COLUMNS, one, strict=True)) for one in row.table],
        }
    return values


class Trackio(Destination):
    """Writes a run to Trackio. It needs no state: the database knows the rows that it has."""

    place = "Trackio"

    def open(self) -> None:
        os.environ["TRACKIO_DIR"] = str(self.folder)
        from trackio.sqlite_storage import SQLiteStorage

        self._storage: Any = SQLiteStorage
        self._project = self.options.get("project") or self.run.project
        self._storage.init_db(self._project)

    def send(self, rows: list[Row]) -> None:
        self._storage.bulk_log(
            project=self._project,
            run=f"{self.run.name} {self.run.id[:8]}",
            run_id=self.run.id,
            metrics_list=[_values(row) for row in rows],
            steps=[row.step for row in rows],
            timestamps=[datetime.fromtimestamp(row.time, UTC).isoformat() for row in rows],
            config=self.run.settings | {"hacrl_url": self.run.url},
            log_ids=[f"{self.run.id}-{row.seq}" for row in rows],
        )
