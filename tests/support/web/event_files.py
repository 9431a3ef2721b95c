"""Reads TensorBoard's event files with its own reader, which verifies every checksum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.util.tensor_util import make_ndarray


def _values(folder: Path) -> list[tuple[int, Any]]:
    (path,) = folder.rglob("events.out.tfevents.*")
    return [(event.step, value) for event in LegacyEventFileLoader(str(path)).Load() for value in event.summary.value]


def event_file_scalars(folder: Path) -> list[tuple[int, str, float]]:
    """(step, tag, value) of the only event file in a folder."""
    return [(step, one.tag, one.simple_value) for step, one in _values(folder) if one.HasField("simple_value")]


def event_file_tables(folder: Path) -> list[tuple[int, list[list[str]]]]:
    """(step, rows of texts) of its tables of rollouts, the names of the columns first."""
    tables = [(step, make_ndarray(one.tensor)) for step, one in _values(folder) if one.tag == "rollouts"]
    return [(step, [[cell.decode() for cell in row] for row in rows]) for step, rows in tables]
