"""Every bench runs at its smallest size and prints its figures: a bench that nobody runs stops working unseen."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
# By module: further arguments, and the figures that it must print.
BENCHES: dict[str, tuple[list[str], str]] = {
    "bad_peers": (["OUT"], r"\| alone \| 1 \|"),
    "first_charts": ([], r"first chart +\d+\.\d\d s"),
    "first_paint": ([], r"first paint \d+\.\d\d s"),
    "footprint": ([], r"smoke +[\d,]+ +\d+ MiB +\d+ MiB +\d"),
    "live_charts": ([], r'"frames/s": \d+'),
    "pages": ([], r"runs list.* \d+ "),
    "placement": ([], r"ray / local \d+\.\d\d"),
    "scaling": ([], r" 2 +1 +\d+ +\d+"),
    "study": (["run", "OUT"], ""),
    "telemetry": ([], r"\d"),
    "trainer": ([], r"GSPO / TRL, dense +\d\.\d{3}"),
    "verifier": ([], r"plain: ours [\d,]+/s, math-verify alone [\d,]+/s, ratio"),
}
NO_BENCH = {"peers", "pictures"}  # a part of telemetry, and the pictures of the docs
IN_BROWSER = {"first_charts", "first_paint", "live_charts"}
NEEDS = {"trainer": "trl", "placement": "ray"}


def test_every_bench_has_a_smoke_run():
    runnable = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text() and path != Path(__file__)}
    assert runnable - NO_BENCH == set(BENCHES)


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow, pytest.mark.timeout(300), *([pytest.mark.browser] if name in IN_BROWSER else [])]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in BENCHES])
def test_smoke_run_prints_its_figures(name, tmp_path):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    if name in IN_BROWSER and not shutil.which("chromium"):
        pytest.skip("no Chromium: apt-get install chromium")
    words, figures = BENCHES[name]
    arguments = [str(tmp_path / "out") if word == "OUT" else word for word in words]
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.{name}", *arguments, "--smoke"],
        cwd=FOLDER.parents[1],
        env={**environment, "HACRL_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(figures, done.stdout), done.stdout[-3000:]
