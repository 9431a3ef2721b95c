"""What CI=true changes: a missing part is a failure, and what depends on the machine's load gets a second try."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import strict
from tests.support.marks import in_full

ONCE = """
import pytest

tries = []

{mark}
def test_passes_at_its_second_try():
    tries.append(1)
    assert len(tries) == 2, "of the load"

{mark}
def test_never_passes():
    raise AssertionError("of the code")
"""


def skipped(reason: str) -> pytest.TestReport:
    place = ("tests/test_x.py", 1, f"Skipped: {reason}")
    return pytest.TestReport("tests/test_x.py::test_x", ("tests/test_x.py", 1, "test_x"), {}, "skipped", place, "setup")


def test_missing_part_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    report = strict(skipped("no Chromium: apt-get install chromium"))
    assert report.failed
    assert "apt-get install chromium" in str(report.longrepr)


def test_missing_part_is_skipped_on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert strict(skipped("no Chromium: apt-get install chromium")).skipped


def test_what_cannot_be_installed_is_skipped_in_ci_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert strict(skipped("needs a CUDA device, and there is none")).skipped


MARKS = {"browser": "@pytest.mark.browser", "workers": "@pytest.mark.slow", "faults": "@pytest.mark.slow", "web": ""}


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "repeated"), [("true", {"browser", "workers"}), *in_full(("", set()))])
def test_second_try_in_ci_is_for_browsers_and_slow_tests_but_for_faults(
    tmp_path: Path, ci: str, repeated: set[str]
) -> None:
    for folder, mark in MARKS.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"test_{folder}.py").write_text(ONCE.format(mark=mark))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    browser\n    gpu\n")
    root, plugins = Path(__file__).parent.parent, ("-p", "tests.conftest", "-p", "no:django", "-p", "no:schemathesis")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rpfR", *plugins, *MARKS],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for folder in MARKS:
        results = set(re.findall(rf"^([A-Z]+) {folder}/test_{folder}.py::(\w+)", ended.stdout, re.MULTILINE))
        names = ("test_passes_at_its_second_try", "test_never_passes")
        if folder in repeated:
            assert results == {("PASSED", names[0]), ("FAILED", names[1]), *(("RERUN", name) for name in names)}
        else:
            assert results == {("FAILED", name) for name in names}
    assert ("failed at the first try" in ended.stdout) == bool(repeated)
    assert "AssertionError: of the load" in ended.stdout
