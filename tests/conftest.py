"""What holds for every test: one thread for each process, GPU tests only with a GPU, no missing part in CI, and there
one more try for a test of a browser or a trainer.

A skip whose reason names an install command says that a part is missing. On a laptop that is a skip; where CI=true it
is a failure, or the suite would shrink without anybody noticing.
"""

from __future__ import annotations

import gc
import json
import os
import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

gc.disable()  # until all tests are collected
settings.register_profile("hacrl", deadline=None)  # a loaded machine is no failure
settings.load_profile("hacrl")

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the hub

TRAINING = {"trainer", "demo", "tools", "model", "rollouts", "agents"}  # folders of tests
LONG = (
    *("tests/browser", "tests/faults", *(f"tests/workers/{name}" for name in TRAINING), "tests/tools"),
    # Of processes of their own, servers and charts: nearly half of the processor time of what is not of a database.
    *("tests/workers/harness", "tests/workers/inspection", "tests/web/ops", "web/test_busy_database.py"),
    *("tests/test_helm_chart.py", "tests/test_helm_product.py", "verifiers/test_python_escapes.py"),
    *("verifiers/test_repeated_judgements.py", "verifiers/test_function_network.py", "telemetry/test_fast_paths.py"),
    *("questions/test_hub_files.py", "questions/test_code_benchmarks.py"),
)
LONGEST = ("test_postgresql.py", "browser", "faults", "agents", "test_upgrade.py", "test_access.py", "trainer", "demo")
OF_ALL_ITS_TESTS = re.compile(r"^pytestmark = .*(django_db|slow)", re.MULTILINE)
WITH_A_PRODUCT = ("tests/browser/", "tests/faults/")  # started once for all of them, which takes 20 s of a processor
MISSING_PART = re.compile(r"\b(apt-get|pip|npm) (install|ci)\b")
AnyReport = TypeVar("AnyReport", pytest.TestReport, pytest.CollectReport)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast suite does not load what it does not run."""
    if "not integration" not in config.getoption("markexpr"):
        return None
    is_long = collection_path.as_posix().endswith(LONG)
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_long or (is_test and OF_ALL_ITS_TESTS.search(collection_path.read_text())) else None


def pytest_collection_finish() -> None:
    """What is loaded stays, so no collection of garbage looks at it."""
    gc.freeze()
    gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    if _is_integration(item):
        item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    from django.db import connection

    from tests.support.migrated import copy_instead_of_migrating

    if connection.vendor == "sqlite":
        copy_instead_of_migrating()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    if _is_ci():
        for item in filter(_may_be_repeated, items):
            item.add_marker(pytest.mark.flaky(reruns=1))
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu or _has_gpu():
        return
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and there is none"))


def _is_integration(item: pytest.Item) -> bool:
    """Whether a test uses a database, or is of a folder that loads or trains models."""
    fixtures = set(getattr(item, "fixturenames", ()))
    uses_database = item.get_closest_marker("django_db") or fixtures & {"db", "transactional_db", "live_server"}
    return bool(uses_database or TRAINING & set(item.path.parts))


def _is_ci() -> bool:
    return os.environ.get("CI") == "true"


def _may_be_repeated(item: pytest.Item) -> bool:
    """Tests of real browsers and real trainers depend on what else the machine does. Faults must hold every time."""
    is_of_processes = item.get_closest_marker("browser") or item.get_closest_marker("slow")
    return bool(is_of_processes) and item.path.parent.name != "faults"


def _turn(item: pytest.Item) -> int:
    """The longest first, so that all processes end together."""
    return min(LONGEST.index(part) if part in LONGEST else len(LONGEST) for part in item.path.parts)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs all tests that share a product of their folder; of the others those of a file."""
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "loadfile":
        return None

    class ByProduct(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in WITH_A_PRODUCT if nodeid.startswith(folder)), None) or str(
                super()._split_scope(nodeid)
            )

    return ByProduct(config, log)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have to report, also where another process ran them."""
    # What fault tests tell is told as they are taken down, and a teardown without an error is kept under no name.
    reports = [report for kind in ("passed", "error", "") for report in terminalreporter.stats.get(kind, [])]
    failed = {report.nodeid for report in terminalreporter.stats.get("failed", [])}
    reports = [report for report in reports if isinstance(report, pytest.TestReport)]
    told = {report.nodeid: dict(report.user_properties) for report in reports if report.nodeid not in failed}
    _faults(terminalreporter, [json.loads(one["fault"]) for one in told.values() if "fault" in one])
    _inputs(terminalreporter, [json.loads(one["hostile"]) for one in told.values() if "hostile" in one])
    _repeated(terminalreporter, terminalreporter.stats.get("rerun", []))
    _crawls(terminalreporter, [json.loads(one["crawl"]) for one in told.values() if "crawl" in one])


def _faults(terminalreporter: pytest.TerminalReporter, lines: list[dict[str, Any]]) -> None:
    """What was killed, what it did (tests/faults/conftest.py)."""
    if lines:
        terminalreporter.section("faults")
    for line in lines:
        recovered = "" if line["recovered_s"] is None else f", {line['recovered_s']:.1f} s"
        shown = "" if line["shown"] is None else f", shown {line['shown']} of {line['for_browsers']}"
        counts = f"emitted {line['emitted']}, stored {line['stored']}{shown}, violations {line['violations']}"
        terminalreporter.write_line(f"{line['database']:<10} {line['killed']}{recovered}: {counts}")


def _repeated(terminalreporter: pytest.TerminalReporter, reports: list[pytest.TestReport]) -> None:
    """What failed at its first try, in full: it is to be mended, also where the second try passed."""
    if reports:
        terminalreporter.section("failed at the first try")
    for report in reports:
        terminalreporter.write_sep("_", report.nodeid)
        terminalreporter.write_line(report.longreprtext)


def _inputs(terminalreporter: pytest.TerminalReporter, lines: list[tuple[str, int]]) -> None:
    """How many inputs of each class were refused as they should (tests/web/test_hostile_inputs.py)."""
    if not lines:
        return
    terminalreporter.section("hostile inputs")
    per_class: Counter[str] = Counter()
    for name, count in lines:
        per_class[name] += count
    for name, count in per_class.items():
        terminalreporter.write_line(f"{count:>5} {name}")
    terminalreporter.write_line(f"{per_class.total()} hostile inputs, 0 answers of 500, 0 rows written")


def _crawls(terminalreporter: pytest.TerminalReporter, lines: list[tuple[str, dict[str, int]]]) -> None:
    """How many requests of each verb found a closed door (tests/web/test_access.py)."""
    if lines:
        terminalreporter.section("crawls")
    for who, per_verb in lines:
        counts = ", ".join(f"{verb} {count}" for verb, count in per_verb.items())
        terminalreporter.write_line(f"{who}: {sum(per_verb.values())} requests, 0 let in ({counts})")


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def strict(report: AnyReport) -> AnyReport:
    """In CI, a skip for want of an installable part becomes a failure."""
    if _is_ci() and report.skipped and isinstance(report.longrepr, tuple):
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
