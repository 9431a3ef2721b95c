"""What holds for every test: one thread for each process, GPU tests only with a GPU, and no missing part in CI.

A skip whose reason names an install command says that a part is missing. On a laptop that is a skip; where CI=true it
is a failure, or the suite would shrink without anybody noticing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator
from typing import TypeVar

import pytest

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the hub

MISSING_PART = re.compile(r"\b(apt-get|pip|npm) (install|ci)\b")
AnyReport = TypeVar("AnyReport", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu or _has_gpu():
        return
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and there is none"))


def _turn(item: pytest.Item) -> int:
    """The longest first, so that two processes end together; browser tests last.

    Playwright leaves an event loop running in its thread: an ORM call or an asyncio test after it would be refused.
    """
    if item.get_closest_marker("browser"):
        return 2
    return 0 if item.path.name == "test_postgresql.py" else 1


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each fault test has to report (tests/faults/conftest.py), also where another process ran it."""
    # They are told as the test is taken down, and a teardown without an error is kept under no name.
    reports = [report for kind in ("", "error") for report in terminalreporter.stats.get(kind, [])]
    reports = [report for report in reports if getattr(report, "when", "") == "teardown"]
    lines = [json.loads(text) for report in reports for name, text in report.user_properties if name == "fault"]
    if lines:
        terminalreporter.section("faults")
    for line in lines:
        recovered = "" if line["recovered_s"] is None else f", {line['recovered_s']:.1f} s"
        shown = "" if line["shown"] is None else f", shown {line['shown']} of {line['for_browsers']}"
        counts = f"emitted {line['emitted']}, stored {line['stored']}{shown}, violations {line['violations']}"
        terminalreporter.write_line(f"{line['database']:<10} {line['killed']}{recovered}: {counts}")


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def strict(report: AnyReport) -> AnyReport:
    """In CI, a skip for want of an installable part becomes a failure."""
    if os.environ.get("CI") == "true" and report.skipped and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
        if MISSING_PART.search(reason):
            report.outcome = "failed"
            report.longrepr = f"With CI=true nothing may be missing. {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return strict((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return strict((yield))
