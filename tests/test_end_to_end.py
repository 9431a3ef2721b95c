"""The demo, headless, as a newcomer runs it: every number of its last line is one that the product's database holds."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workers.contract.demo_recipe import AGENTS
from workers.demo.make import make_demo

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
ALGORITHMS = ("hacpo", "gspo")  # of the demo's five: all of them learn in workers/trainer/test_learning.py

# Runs where none of our code can be imported: an exported agent needs only transformers.
ANSWERS = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, questions = sys.argv[1], json.loads(sys.argv[2])
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
texts = []
for start in range(0, len(questions), 200):
    inputs = tokenizer(questions[start : start + 200], padding=True, padding_side="left", return_tensors="pt")
    ids = model.generate(
        inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=26, do_sample=False
    )[:, inputs.input_ids.shape[1]:]
    texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
assert not any(name.split(".")[0] in ("workers", "hacrl_web") for name in sys.modules)
print(json.dumps(texts))
"""


def run_demo(data: Path, algorithms: tuple[str, ...]) -> dict[str, Any]:
    """The last line of `demo --once --json`."""
    environment = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "REDIS_URL")}
    rules = ["--algorithms", ",".join(algorithms)]
    command = [sys.executable, "-m", "hacrl_web.ops.up", "demo", "--once", "--json", *rules]
    environment |= {"HACRL_DATA": str(data), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stderr[-3000:]
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.fixture(scope="module", params=["shipped agents", "agents made anew"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Data folder and last line of the demo. Making its agents takes as long as training both runs."""
    data = tmp_path_factory.mktemp("demo")
    make_demo(data / "models" / "demo", is_anew=request.param == "agents made anew")
    return data, run_demo(data, ALGORITHMS)


def test_hacpo_beats_gspo_on_the_demo_pair(demo: tuple[Path, dict[str, Any]]) -> None:
    runs = {run["algorithm"]: run for run in demo[1]["runs"]}
    assert set(runs) == set(ALGORITHMS)
    assert runs["hacpo"]["accuracy_final"] - runs["gspo"]["accuracy_final"] >= 0.05
    assert runs["hacpo"]["accuracy_final"] - runs["hacpo"]["accuracy_start"] >= 0.30
    # 40 steps, 24 prompts, G 8, 2 agents
    assert runs["hacpo"]["rollouts"] == runs["gspo"]["rollouts"] == 40 * 24 * 8 * 2


def test_gspox2_pays_double(tmp_path: Path) -> None:
    (run,) = run_demo(tmp_path, ("gspox2",))["runs"]
    assert run["rollouts"] == 2 * 40 * 24 * 8 * 2


def test_every_number_comes_from_the_database(demo: tuple[Path, dict[str, Any]]) -> None:
    data, summary = demo
    with sqlite3.connect(data / "db.sqlite3") as database:
        for run in summary["runs"]:
            key = run["run"].replace("-", "")
            query = "select step, payload from runs_telemetryevent where run_id = ? and type = 'evaluation'"
            found: dict[int, list[float]] = {}
            for step, payload in database.execute(query, [key]):
                found.setdefault(step, []).append(json.loads(payload)["value"])
            assert {len(values) for values in found.values()} == {len(AGENTS)}
            assert run["accuracy_start"] == pytest.approx(sum(found[0]) / len(AGENTS), abs=1e-12)
            assert run["accuracy_final"] == pytest.approx(sum(found[40]) / len(AGENTS), abs=1e-12)
            counted = database.execute("select count(*) from runs_rolloutsample where run_id = ?", [key]).fetchone()[0]
            assert run["rollouts"] == counted


def test_every_event_is_stored_exactly_once(demo: tuple[Path, dict[str, Any]]) -> None:
    data, summary = demo
    with sqlite3.connect(data / "db.sqlite3") as database:
        for run in summary["runs"]:
            # Full spool files are removed once they are stored: what is left ends with the last event there was.
            spool = (data / "runs" / run["run"] / "events.jsonl").read_text()
            left = [json.loads(line)["seq"] for line in spool.splitlines()]
            last = left[-1]
            is_without_gap = left == list(range(left[0], last + 1))
            assert is_without_gap
            stored: list[int] = []
            for table in ("telemetryevent", "rolloutsample", "contribution", "questionchunk", "answerchunk"):
                rows = database.execute(f"select seq from runs_{table} where run_id = ?", [run["run"].replace("-", "")])
                stored += [seq for (seq,) in rows]
            # As plain comparisons: the difference of two long lists takes minutes to print.
            assert (len(stored), min(stored), max(stored)) == (last, 1, last)
            assert len(set(stored)) == last


def test_trained_agent_answers_without_our_code(demo: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    data, summary = demo
    run = next(run for run in summary["runs"] if run["algorithm"] == "hacpo")
    questions = [json.loads(line) for line in (data / "models" / "demo" / "held_out.jsonl").read_text().splitlines()]
    for index, (name, result) in enumerate(run["agents"].items()):
        (folder,) = (data / "runs" / run["run"] / "checkpoints" / "step-000040" / "agents").glob(f"{index}-*")
        command = [sys.executable, "-I", "-c", ANSWERS, str(folder), json.dumps([q["question"] for q in questions])]
        output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        texts = json.loads(output.splitlines()[-1])
        right = sum(f"\\boxed{{{q['answer']}}}" in text for q, text in zip(questions, texts, strict=True))
        # As good alone, outside, as the run said; the verifier also accepts an expression in the box.
        assert right / len(questions) == pytest.approx(result["accuracy_final"], abs=0.02), name
