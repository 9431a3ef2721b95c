"""An evaluation by a stand-in of lm-evaluation-harness: its numbers as events, and every way in which it can fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_harness import VERSION, put_harness
from tests.support.waiting import wait_until
from tests.support.workers.tiny import records
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.contract.trainer_log import LIMIT_BYTES, allocated_bytes
from workers.contract.trainer_process import start_trainer
from workers.harness import command
from workers.harness.command import HarnessFailed
from workers.harness.evaluation import HarnessEvaluation, has_chat_prompts
from workers.harness.results import harness_results
from workers.trainer.stop_signals import Paused, StopFlag, Stopped


@pytest.fixture
def harness(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HACRL_LM_EVAL", str(put_harness(tmp_path)))
    return tmp_path


def spec_of(*tasks: str, **settings: Any) -> RunSpec:
    values = {
        "agents": [{"name": name, "model": f"/models/{name}"} for name in "AB"],
        "data": {"train_path": "-"},
        "training": {"steps": 0},
        "compute": {"device": "cpu"},
        "harness": {"tasks": list(tasks), **settings},
    }
    return RunSpec.model_validate(values)


def evaluate(spec: RunSpec, run_dir: Path, stop: StopFlag | None = None, attempt: int = 1) -> None:
    run_dir.mkdir(exist_ok=True)
    spool = SpoolWriter(run_dir, attempt)
    try:
        HarnessEvaluation(spec, run_dir, spool, stop or StopFlag()).run()
    finally:
        spool.close()


def test_every_metric_is_recorded_with_filter_error_and_versions(harness):
    evaluate(spec_of("gsm8k", limit=4), harness / "run")
    first, second = records(harness / "run", "harness")
    assert (first["agent"], second["agent"]) == ("A", "B")
    assert (first["harness"], first["version"], first["task"]) == ("lm-evaluation-harness", VERSION, "gsm8k")
    assert (first["task_version"], first["num_fewshot"], first["has_chat_template"]) == ("3.0", 5, True)
    assert (first["num_questions"], first["num_available"], first["is_group"]) == (4, 1319, False)
    assert [(one["metric"], one["filter"], one["value"], one["stderr"]) for one in first["scores"]] == [
        ("exact_match", "strict", 0.25, 0.25),
        ("exact_match", "flexible", 0.75, 0.25),
        ("bleu", "none", 12.5, None),
    ]
    assert [one["eta_s"] for one in records(harness / "run", "progress")][-1] == 0


@pytest.mark.parametrize(("value", "is_allowed"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_metrics_of_the_hub_are_allowed_by_the_operator_alone(monkeypatch, value, is_allowed):
    monkeypatch.delenv("HACRL_LM_EVAL_METRIC_CODE", raising=False)
    if value is not None:
        monkeypatch.setenv("HACRL_LM_EVAL_METRIC_CODE", value)
    code = "import evaluate; print(evaluate.__file__); evaluate.load('rouge', module_type='metric')"
    environment = command.environment() | {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    stands_in = done.stdout.strip() == str(command.NO_METRIC_CODE / "evaluate.py")
    assert (stands_in, "metric 'rouge' is code" in done.stderr) == (not is_allowed, not is_allowed)
    assert done.returncode == 1


def test_command_gets_the_settings_and_trusts_no_code(harness):
    model = harness / "model"
    model.mkdir()
    (model / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    spec = spec_of("gsm8k", "arc_easy", num_fewshot=3, limit=4)
    spec = RunSpec.model_validate(
        spec.model_dump(mode="json") | {"seed": 7, "agents": [{"name": "A", "model": str(model)}]}
    )
    evaluate(spec, harness / "run")
    settings = json.loads((harness / "run" / "harness" / "0" / "config.json").read_text())
    assert settings == {
        "model": "hf",
        "model_args": {
            "pretrained": str(model),
            "dtype": "float32",
            "use_safetensors": True,
            "add_bos_token": False,
            "chat_template_args": {},
        },
        "tasks": ["gsm8k", "arc_easy"],
        "include_path": None,
        "num_fewshot": 3,
        "limit": 4,
        "batch_size": 8,
        "device": "cpu",
        "apply_chat_template": True,
        "seed": [7, 7, 7, 7],
        "output_path": str(harness / "run" / "harness" / "0" / "results.json"),
    }


@pytest.mark.parametrize(
    ("file", "content"),
    [("chat_template.jinja", "{{ messages }}"), ("tokenizer_config.json", '{"chat_template": "{{ messages }}"}')],
)
def test_prompts_are_chats_where_the_tokenizer_has_a_template(tmp_path, file, content):
    assert not has_chat_prompts(str(tmp_path), "auto")
    with pytest.raises(HarnessFailed, match="no chat template"):
        has_chat_prompts(str(tmp_path), "chat")
    (tmp_path / file).write_text(content)
    assert [has_chat_prompts(str(tmp_path), one) for one in ("auto", "chat", "plain")] == [True, True, False]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"", "it wrote nothing"),
        (b"one\ntwo\n", "two"),
        (
            b'Traceback:\n  File "a.py", line 3\n    raise\nValueError: no task\nNone such.\n',
            "ValueError: no task\nNone such.",
        ),
        (b"  10%|#\r  20%|##\r\xff", "\ufffd"),
        (b"x" * 5000, "x" * 1000),
    ],
)
def test_reason_of_a_failure_is_what_the_harness_said_last(output, words):
    assert command.last_words(output) == words


def test_run_of_an_earlier_version_loads_unless_it_asks_its_benchmarks(harness):
    values = spec_of("gsm8k").model_dump(mode="json")
    assert RunSpec.model_validate({**values, "harness": {"tasks": ["gsm8k"], "has_benchmarks": False}}) == spec_of(
        "gsm8k"
    )
    with pytest.raises(ValueError, match="has_benchmarks True left this version: name tasks of the harness alone"):
        RunSpec.model_validate({**values, "harness": {"tasks": ["gsm8k"], "has_benchmarks": True}})
    with pytest.raises(HarnessFailed, match=r"names no task of lm-evaluation-harness: set harness\.tasks"):
        evaluate(spec_of(), harness / "run")


def test_missing_harness_names_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HACRL_LM_EVAL", str(tmp_path / "none"))
    with pytest.raises(HarnessFailed, match=r"none is not there.*install it as docs/harness\.md says"):
        evaluate(spec_of("gsm8k"), tmp_path / "run")
    monkeypatch.delenv("HACRL_LM_EVAL")
    with pytest.raises(HarnessFailed, match="HACRL_LM_EVAL names no Python"):
        evaluate(spec_of("gsm8k"), tmp_path / "run")


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("fails", "ended with status 1: ValueError: Tasks not found: fails$"),
        ("malformed", "are not JSON"),
        ("silent", "ended without results: the harness's own output"),
        ("killed", "was killed by SIGKILL: the harness's own output"),
    ],
)
def test_failure_says_what_happened_and_stores_nothing(harness, task, reason):
    with pytest.raises(HarnessFailed, match=reason):
        evaluate(spec_of(task), harness / "run")
    assert records(harness / "run", "harness") == []


def test_hanging_harness_is_killed_with_its_children_at_the_time_limit(harness):
    with pytest.raises(HarnessFailed, match="did not end within 1 s and was killed"):
        evaluate(spec_of("hangs", time_limit_s=1), harness / "run")
    assert_dead(int((harness / "run" / "harness" / "0" / "child").read_text()))


def assert_dead(pid: int) -> None:
    def is_dead() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    assert wait_until(is_dead, 60), f"process {pid} lives"


def test_processor_time_of_children_counts_as_work():
    """The parent only waits."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        assert wait_until(lambda: command.processor_time(parent.pid) >= 1.0, 60)  # to start takes 0.1 s
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
    assert command.processor_time(parent.pid) == 0


def test_stop_ends_the_harness_at_once(harness):
    stop = StopFlag()
    threading.Timer(0.7, lambda: setattr(stop, "is_set", True)).start()
    with pytest.raises(Stopped):
        evaluate(spec_of("hangs"), harness / "run", stop)
    child = harness / "run" / "harness" / "0" / "child"
    if child.exists():
        assert_dead(int(child.read_text()))


def test_paused_evaluation_continues_with_the_model_under_way(harness):
    stop, run_dir = StopFlag(), harness / "run"
    evaluate(spec_of("gsm8k"), run_dir)
    (run_dir / "harness" / "1" / "stored").unlink()  # as if B had been under way
    stop.is_pause_requested = True
    with pytest.raises(Paused, match="pause was requested"):
        evaluate(spec_of("gsm8k"), run_dir, stop, attempt=2)
    evaluate(spec_of("gsm8k"), run_dir, attempt=3)
    assert [(one["agent"], one["attempt"]) for one in records(run_dir, "harness")] == [("A", 1), ("B", 1), ("B", 3)]


def test_results_that_are_too_large_are_refused(harness, monkeypatch):
    monkeypatch.setattr(command, "MAX_RESULT_BYTES", 100)
    with pytest.raises(HarnessFailed, match="of results"):
        evaluate(spec_of("gsm8k"), harness / "run")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, "have no 'results'"),
        ({"results": []}, "have no 'results'"),
        ({"results": {"a": 3}}, "on a are no object"),
        ({"results": {"a": {"acc,none": "N/A"}}}, "gave no score"),
        ({"results": {"a": {"acc,none": True}}}, "gave no score"),
    ],
)
def test_results_of_another_form_are_refused(content, reason):
    with pytest.raises(HarnessFailed, match=reason):
        harness_results(content, "A")


def test_results_beyond_what_is_expected_are_left_out_or_cut():
    odd = {
        "lm_eval_version": 4,
        "results": {
            "t" * 300: {"acc,none": float("inf"), "acc_stderr,none": [], "f1,none": 10**400},
            "group": {"acc,none": 0.5},
        },
        "groups": {"group": {"acc,none": 0.5}},
        "n-samples": {"group": "many"},
        "versions": 7,
        "n-shot": {"group": -1},
        "higher_is_better": {"group": {"acc": None}},
    }
    task, group = harness_results(odd, "A")
    assert len(task.task) == 200
    assert [(one.value, one.stderr) for one in task.scores] == [(None, None), (None, None)]
    assert (group.is_group, group.num_questions, group.num_fewshot) == (True, None, None)


def test_run_of_a_harness_is_a_process_whose_log_is_limited(harness):
    run_dir = harness / "run"
    run_dir.mkdir()
    spec = spec_of("floods")
    (run_dir / "spec.json").write_text(spec.to_json())
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    trainer = start_trainer(run_dir, 1, environment=environment)
    assert wait_until(lambda: trainer.poll() is not None, 60)
    assert trainer.kill() == 0
    (finished,) = records(run_dir, "finished")
    assert (finished["outcome"], len(records(run_dir, "harness"))) == ("completed", 2)
    log = run_dir / "trainer.log"
    assert log.stat().st_size > 24 * 2**20  # as the two models wrote
    assert allocated_bytes(log.stat()) <= LIMIT_BYTES
    with log.open("rb") as file:
        assert b"the harness's own output" in file.read(10_000)


def test_harness_trains_nothing():
    with pytest.raises(ValueError, match=r"set training\.steps to 0"):
        RunSpec.model_validate(spec_of("gsm8k").model_dump(mode="json") | {"training": {"steps": 3}})
