"""What is stored, read by plain SQL past the product's own code: a witness that shares none of its mistakes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

TABLES = (
    *("runs_telemetryevent", "runs_rolloutsample", "runs_contribution"),
    *("runs_questionchunk", "runs_answerchunk"),
)
TYPES = {
    "runs_rolloutsample": "rollout",
    "runs_contribution": "contribution",
    "runs_questionchunk": "questions",
    "runs_answerchunk": "answers",
}
Place = tuple[int, int, str, int | None]  # seq, attempt, type, step


@dataclass
class StoredRun:
    """One run's row, its history, and the places of all its events, of every table."""

    run_id: UUID
    name: str
    state: str
    attempt: int
    last_seq: int
    changes: list[tuple[str, str, int, str]] = field(default_factory=list)  # from, to, attempt, reason
    places: list[Place] = field(default_factory=list)  # by seq
    streamed: list[Place] = field(default_factory=list)  # those that browsers are sent


class Database:
    """Changes nothing. `url`: a path of SQLite or an address of PostgreSQL."""

    def __init__(self, url: str | Path) -> None:
        self.url = url

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query whose places for values are question marks."""
        values = tuple(self.key(value) if isinstance(value, UUID) else value for value in values)
        if isinstance(self.url, Path):
            connection: Any = sqlite3.connect(f"file:{self.url}?mode=ro", uri=True, timeout=30)
        else:
            import psycopg

            connection, query = psycopg.connect(self.url, connect_timeout=10), query.replace("?", "%s")
        try:
            return list(connection.execute(query, values).fetchall())
        finally:
            connection.close()

    def is_writable(self, run_id: UUID) -> bool:
        """Whether no transaction holds the run's row; on SQLite, whether none holds the database for long."""
        if isinstance(self.url, Path):
            connection = sqlite3.connect(self.url, isolation_level=None, timeout=0.5)
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
            finally:
                connection.close()
            return True
        free = "SELECT count(*) FROM (SELECT 1 FROM runs_run WHERE id = ? FOR UPDATE SKIP LOCKED) AS free"
        return bool(self.value(free, run_id))

    def value(self, query: str, *values: Any) -> Any:
        """The first column of the first row, or None."""
        found = self.rows(query, *values)
        return found[0][0] if found else None

    def key(self, run_id: UUID) -> Any:
        return run_id.hex if isinstance(self.url, Path) else run_id

    def states(self) -> dict[UUID, tuple[str, int]]:
        """State and attempt of every run."""
        found = self.rows("SELECT id, state, attempt FROM runs_run")
        return {_uuid(key): (state, attempt) for key, state, attempt in found}

    def run(self, run_id: UUID) -> StoredRun:
        row = self.rows("SELECT name, state, attempt, last_seq FROM runs_run WHERE id = ?", run_id)[0]
        changes = "SELECT from_state, to_state, attempt, reason FROM runs_statuschange WHERE run_id = ? ORDER BY id"
        stored = StoredRun(run_id, *row, changes=[(a, b, c, d) for a, b, c, d in self.rows(changes, run_id)])
        for table in TABLES:
            places = self.places(run_id, table)
            stored.places += places
            if table not in TYPES:
                stored.streamed = places
        stored.places.sort(key=lambda place: place[0])
        return stored

    def places(self, run_id: UUID, table: str = TABLES[0]) -> list[Place]:
        kind = f"'{TYPES[table]}'" if table in TYPES else "type"
        step = "NULL" if table == "runs_questionchunk" else "step"
        found = self.rows(f"SELECT seq, attempt, {kind}, {step} FROM {table} WHERE run_id = ? ORDER BY seq", run_id)
        return [(seq, attempt, kind, step) for seq, attempt, kind, step in found]


def _uuid(key: Any) -> UUID:
    return key if isinstance(key, UUID) else UUID(key)


def numbers(places: Sequence[Place]) -> list[int]:
    return [place[0] for place in places]
