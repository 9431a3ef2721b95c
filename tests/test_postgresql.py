"""The web tests that use the database once more, on PostgreSQL: the same tests, the same code, another DATABASE_URL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres import GET_IT, binaries, private_postgresql

ROOT = Path(__file__).resolve().parent.parent
# What is SQL: statements of our own, locks, JSON, constraints, COPY, and every page once. `full` runs all web tests.
IN_EVERY_BUILD = (
    "accounts/test_audit_log.py",
    "alerts/test_alerts.py",
    "insight/collaboration/test_collaboration.py",
    "insight/export",
    "insight/rollouts/test_prompt_list.py",
    "insight/rollouts/test_search.py",
    "registry/test_deletion.py",
    "runs/archive/test_deletion.py",
    "runs/live/test_monitoring.py",
    "runs/telemetry/test_metric_series.py",
    "runs/telemetry/test_shipper.py",
    "runs/worker/test_run_states.py",
    "runs/workspace",
    "test_at_once.py",
    "test_pages.py",
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_web_suite_passes_on_postgresql(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if binaries() is None:
        pytest.skip(f"no PostgreSQL here; get it: {GET_IT}")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "HACRL_"))}
    is_all = not request.config.getoption("markexpr")  # ./hacrl test full
    chosen = ["tests/web"] if is_all else [f"tests/web/{name}" for name in IN_EVERY_BUILD]
    command = [sys.executable, "-m", "pytest", *chosen, "-q", "-m", "not full", "-p", "no:cacheprovider"]
    command += ["-p", "tests.support.only_database"]
    with private_postgresql() as url:
        done = subprocess.run(
            [*command, f"--basetemp={tmp_path / 'web'}"],
            cwd=ROOT,
            env={**inherited, "DATABASE_URL": url},
            capture_output=True,
            text=True,
        )
    closing_line = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "nothing"
    print(f"on PostgreSQL: {closing_line}")
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert " passed" in closing_line
