"""What a missing part does to the suite: a skip on a laptop, a failure where CI=true."""

from __future__ import annotations

import pytest

from tests.conftest import strict


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
