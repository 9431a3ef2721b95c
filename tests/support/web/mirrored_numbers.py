"""The numbers that a destination must have of a run, from the events that a test wrote; and those that it has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.web.destination_readers import NUMBERS
from workers.contract.events import Body, Evaluation, Metrics

Numbers = list[tuple[int, str, float]]  # (step, name, value)


def written_numbers(events: Iterable[Body]) -> Numbers:
    """Of the events of one attempt whose names every destination takes, without the code of mirrors."""
    numbers: dict[tuple[int, str], float | None] = {}
    for event in events:
        if isinstance(event, Metrics):
            source = f"/from {event.source}" if event.source else ""
            quotients = {name: total / count if count else None for name, (total, count) in event.ratios.items()}
            for name, value in {**event.values, **quotients}.items():
                numbers[event.step, f"{event.agent}/{name}{source}"] = value
        elif isinstance(event, Evaluation):
            numbers[event.step, f"{event.agent}/{event.metric}"] = event.value
    return sorted((step, name, value) for (step, name), value in numbers.items() if value is not None)


def stored_numbers(python: str, kind: str, folder: Path, address: str = "") -> Numbers:
    return sorted((step, name, value) for step, name, value in run_reader(python, NUMBERS[kind], folder, address))


def run_reader(python: str, program: str, folder: Path, address: str = "") -> Any:
    done = subprocess.run(
        [python, "-c", program, str(folder), address], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def compare(found: Numbers, wanted: Numbers) -> None:
    """Each number once, equal but for the rounding to 32 bits."""
    assert len(found) == len(wanted) > 50
    assert [one[:2] for one in found] == [one[:2] for one in wanted]
    for (_, name, value), (_, _, other) in zip(found, wanted, strict=True):
        assert value == pytest.approx(other, rel=1e-6), name


def needs(kind: str, python: str) -> None:
    if subprocess.run([python, "-c", f"import {kind}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{kind} is not installed")
