"""Every bench runs at its smallest size and prints its figures: a bench that nobody runs stops working unseen."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SMOKE = ["--smoke"]
# By module: its arguments, and the figures that it must print. OUT: an empty folder.
BENCHES: dict[str, tuple[list[str], str]] = {
    "gpu": (["memory", *SMOKE], r"smoke: 2 steps"),
    "logits": (SMOKE, r"difference of the loss \d"),
    "pages": (SMOKE, r"runs list.* \d+ "),
    "pretrained": (["OUT", *SMOKE], r"signed - gspo after 2 steps"),
    "sampling": (SMOKE, r"sampling: \d+\.\d+ of the forward passes"),
    "telemetry": (SMOKE, r"\d"),
    "trainer": (SMOKE, r"GSPO / TRL, dense +\d\.\d{3}"),
    "verifier": (SMOKE, r"plain: ours [\d,]+/s, math-verify alone [\d,]+/s, ratio"),
}
# Tests train the same beside TRL; the output layer has tests of its own.
FULL = {"gpu", "logits", "pages", "pretrained", "sampling", "telemetry", "trainer"}
NEEDS = {"trainer": "trl"}


def test_every_bench_has_a_smoke_run():
    runnable = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text() and path != Path(__file__)}
    assert runnable == set(BENCHES)


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow, pytest.mark.timeout(300), *[pytest.mark.full][: name in FULL]]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs trl")
def test_what_is_recorded_on_a_gpu_runs_to_its_end_on_a_cpu(tmp_path):
    script = [FOLDER.parent / "gpu" / "record.sh", "--smoke", "contract", "profile", "steps", "trl"]
    environment = {**os.environ, "OUT": str(tmp_path), "PYTHON": sys.executable}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=580)
    for figure in (
        "contract: skipped",
        "static: .* ms a token",
        "vllm is skipped",
        r"growing, .* 8: .* s \(",
        "TRL, .* s",
    ):
        assert re.search(figure, done.stdout), (figure, done.stdout)
    assert "status" not in done.stdout
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in BENCHES])
def test_smoke_run_prints_its_figures(name, tmp_path):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    words, figures = BENCHES[name]
    arguments = [str(tmp_path / "out") if word == "OUT" else word for word in words]
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
