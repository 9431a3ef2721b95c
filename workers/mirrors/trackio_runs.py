"""Trackio: a run of a project in its own database on this machine; `trackio show` draws it, `trackio sync` uploads it.

Each row carries an id of the run and its seq, which the database keeps once, with its table of rollouts.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from workers.mirrors.messages import COLUMNS, TABLE, Opened, Opening, Row, State, import_problem


def _table(row: Row) -> dict[str, Any]:
    """As the database stores a trackio.Table."""
    if not row.rollouts:
        return {}
    return {TABLE: {"_type": "trackio.table", "_value": [dict(zip(COLUMNS, one, strict=True)) for one in row.table]}}


class TrackioSession:
    """It needs no state: the database says which rows it has."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        os.environ["TRACKIO_DIR"] = str(opening.folder)
        try:
            from trackio.sqlite_storage import SQLiteStorage
        except ImportError:
            raise import_problem("trackio") from None
        self._storage: Any = SQLiteStorage
        self._project = opening.options.get("project") or opening.run.project
        self._name = f"{opening.run.name} {opening.run.id[:8]}"

    def open(self) -> Opened:
        self._storage.init_db(self._project)
        return Opened(self._opening.after, {})

    def send(self, rows: list[Row]) -> State:
        self._storage.bulk_log(
            project=self._project,
            run=self._name,
            run_id=self._opening.run.id,
            metrics_list=[row.values | {"attempt": row.attempt} | _table(row) for row in rows],
            steps=[row.step for row in rows],
            timestamps=[datetime.fromtimestamp(row.time, UTC).isoformat() for row in rows],
            config=self._opening.run.settings | {"hacrl_url": self._opening.run.url},
            log_ids=[f"{self._opening.run.id}-{row.seq}" for row in rows],
        )
        return {}

    def close(self, status: str) -> State:
        return {}
