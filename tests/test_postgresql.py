"""The web tests that use the database once more, on PostgreSQL: the same tests, the same code, another DATABASE_URL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres import GET_IT, binaries, private_postgresql

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_web_suite_passes_on_postgresql(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if binaries() is None:
        pytest.skip(f"no PostgreSQL here; get it: {GET_IT}")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "HACRL_"))}
    is_all = not request.config.getoption("markexpr")  # ./hacrl test full
    chosen = "not full" if is_all else "not full and database"
    command = [sys.executable, "-m", "pytest", "tests/web", "-q", "-m", chosen, "-p", "no:cacheprovider"]
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
