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

from tests.bench.product import generated_runs

FOLDER = Path(__file__).parent
SMOKE = ["--smoke"]
FEW_RUNS = ["--data", "RUNS", "--loads", "1"]
# By module: its arguments, and the figures that it must print. OUT: an empty folder. RUNS: one with generated runs.
BENCHES: dict[str, tuple[list[str], str]] = {
    "bad_peers": (["OUT", *SMOKE], r"\| alone \| 1 \|"),
    "curriculum": (["OUT", *SMOKE], r"\| curriculum_rest 3 \| \.\d{3} \|"),
    "first_charts": (FEW_RUNS, r"first chart +\d+\.\d\d s"),
    "first_paint": (FEW_RUNS, r"first paint \d+\.\d\d s"),
    "footprint": (SMOKE, r"smoke +[\d,]+ +\d+ MiB +\d+ MiB +\d"),
    "gpu": (SMOKE, r"smoke: 2 steps"),
    "live_charts": (SMOKE, r'"frames/s": \d+'),
    "logits": (SMOKE, r"difference of the loss \d"),
    "pages": (SMOKE, r"runs list.* \d+ "),
    "placement": (SMOKE, r"processes / local +\d+\.\d+ [\s\S]*ray / local +\d+\.\d+ "),
    "pretrained": (["OUT", *SMOKE], r"signed - gspo after 2 steps"),
    "real_shapes": (SMOKE, r"smoke: completed in \d+ s"),
    "sampling": (SMOKE, r"sampling: \d+\.\d+ of the forward passes"),
    "scaling": (SMOKE, r" 2 +1 +\d+ +\d+"),
    "staleness": (SMOKE, r"1 / 0 \d+\.\d+ .* so at best \d"),
    "study": (["run", "OUT", *SMOKE], ""),
    "telemetry": (SMOKE, r"\d"),
    "trainer": (SMOKE, r"GSPO / TRL, dense +\d\.\d{3}"),
    "verifier": (SMOKE, r"plain: ours [\d,]+/s, math-verify alone [\d,]+/s, ratio"),
}
NO_BENCH = {"peers", "pictures"}  # a part of telemetry, and the pictures of the docs
IN_BROWSER = {"first_charts", "first_paint", "live_charts"}
# Tests train the same: under Ray, beside TRL, with bad peers, with real tokenizers; the memory estimate, the output
# layer and the study have tests of their own; and test_measures watches first paint and live charts.
FULL = {"bad_peers", "first_charts", "first_paint", "footprint", "live_charts", "logits", "pages", "placement"}
FULL |= {"curriculum", "gpu", "pretrained", "real_shapes", "staleness", "study", "telemetry", "trainer"}
NEEDS = {"trainer": "trl", "placement": "ray"}


def test_every_bench_has_a_smoke_run():
    runnable = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text() and path != Path(__file__)}
    assert runnable - NO_BENCH == set(BENCHES)


def marks(name: str) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.slow, pytest.mark.timeout(300)]
    return [*found, *[pytest.mark.browser][: name in IN_BROWSER], *[pytest.mark.full][: name in FULL]]


@pytest.fixture(scope="module")
def few_runs():
    with generated_runs() as data:
        yield data


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in BENCHES])
def test_smoke_run_prints_its_figures(name, tmp_path, request):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    if name in IN_BROWSER and not shutil.which("chromium"):
        pytest.skip("no Chromium: apt-get install chromium")
    words, figures = BENCHES[name]
    made = {"OUT": lambda: str(tmp_path / "out"), "RUNS": lambda: request.getfixturevalue("few_runs")}
    arguments = [made[word]() if word in made else word for word in words]
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.{name}", *arguments],
        cwd=FOLDER.parents[1],
        env={**environment, "HACRL_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(figures, done.stdout), done.stdout[-3000:]
