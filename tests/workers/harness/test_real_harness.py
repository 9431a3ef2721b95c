"""The real lm-evaluation-harness, where it is installed: it and we agree on the same questions to a trained model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.workers.tiny import records
from workers.contract.demo_recipe import HELD_OUT_FILE, SKILLS, TRAIN_FILE
from workers.contract.repository import ROOT
from workers.contract.spec.harness import HARNESS_ENVIRONMENT, python_of_environment
from workers.contract.spec.run import RunSpec
from workers.demo.task import make_problems, write_questions
from workers.demo.warm_start import WarmStart, train_agent
from workers.harness.install import folder_of_data, write_catalogue

PYTHON = os.environ.get("HACRL_LM_EVAL") or str(python_of_environment(folder_of_data() / HARNESS_ENVIRONMENT))
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="lm-evaluation-harness is not on this machine"),
]
NUM_QUESTIONS = 80
# It writes a user's message as it is, so that a model that learned bare prompts understands it.
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'system' %};{% endif %}{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model that has half learned the demo's problems, its twin with a chat template, and the questions."""
    root = tmp_path_factory.mktemp("trained")
    train_agent(WarmStart("qwen3", correct_share=dict.fromkeys(SKILLS, 0.6)), root / "bare", seed=1, steps=1000)
    subprocess.run(["cp", "-r", str(root / "bare"), str(root / "chat")], check=True)
    (root / "chat" / "chat_template.jinja").write_text(TEMPLATE)
    write_questions(root, *make_problems(1))
    return root


def spec_of(folder: Path, name: str, **changes: Any) -> RunSpec:
    data = {"benchmark": "order of operations", "train_path": str(folder / TRAIN_FILE)}
    data |= {"eval_path": str(folder / HELD_OUT_FILE), "verifier": "math", **changes.pop("data", {})}
    values = {
        "agents": [{"name": "one", "model": str(folder / name)}],
        "data": data,
        "rollout": {"max_completion_length": 24, "max_prompt_length": 64},
        "training": {"steps": 0},
        "evaluation": {"max_questions": NUM_QUESTIONS},
        "compute": {"device": "cpu", "num_threads": 1},
    }
    return RunSpec.model_validate(values | changes)


def run(spec: RunSpec, run_dir: Path) -> Path:
    path = run_dir.parent / f"{run_dir.name}.json"
    path.write_text(spec.to_json())
    environment = os.environ | {"HACRL_LM_EVAL": PYTHON, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {"HACRL_LM_EVAL_TASKS": str(run_dir.parent / "tasks"), "HF_HOME": str(run_dir.parent / "hf")}
    command = [sys.executable, "-m", "workers", str(path), str(run_dir)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, f"{records(run_dir, 'finished')}\n{ended.stdout[-3000:]}\n{ended.stderr[-6000:]}"
    return run_dir


def score_of(result: dict[str, Any], name: str) -> float:
    (value,) = [one["value"] for one in result["scores"] if one["filter"] == name]
    return float(value)


@pytest.mark.parametrize(
    ("name", "changes", "has_template"),
    [
        ("bare", {}, False),
        ("chat", {}, True),
        ("chat", {"data": {"system_prompt": "7"}}, True),
        ("bare", {"data": {"system_prompt": "7"}}, False),
    ],
    ids=["bare", "chat", "chat with a system message", "bare with a system message"],
)
def test_harness_and_we_find_the_same_accuracy(tmp_path, folder, name, changes, has_template):
    (ours,) = records(run(spec_of(folder, name, **changes), tmp_path / "ours"), "evaluation")
    theirs_spec = spec_of(folder, name, harness={"has_benchmarks": True, "batch_size": 16}, **changes)
    (theirs,) = records(run(theirs_spec, tmp_path / "theirs"), "harness")
    assert (theirs["benchmark"], theirs["has_chat_template"]) == ("order of operations", has_template)
    assert (theirs["num_questions"], ours["asked"]) == (NUM_QUESTIONS, NUM_QUESTIONS)
    assert ours["questions"].startswith(theirs["task_version"])
    print("ours", ours["value"], "theirs", score_of(theirs, "final"), "boxed", score_of(theirs, "boxed"))
    assert score_of(theirs, "final") == pytest.approx(ours["value"], abs=1e-12)
    if not changes:  # it has learned something, and not all
        assert 0.05 < ours["value"] < 0.95


def test_own_task_of_the_operators_folder_is_evaluated(tmp_path, folder):
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    lines = [json.dumps({"text": "1+1=", "options": ["2", "3"], "gold": place % 2}) for place in range(6)]
    (tasks / "data.jsonl").write_text("\n".join(lines))
    (tasks / "own.yaml").write_text(
        f"""task: own_choices
dataset_path: json
dataset_kwargs:
  data_files: {{test: {tasks / "data.jsonl"}}}
test_split: test
output_type: multiple_choice
doc_to_text: text
doc_to_choice: options
doc_to_target: gold
metric_list:
  - metric: acc
metadata: {{version: 2}}
"""
    )
    spec = spec_of(folder, "bare", harness={"tasks": ["own_choices"], "limit": 4, "num_fewshot": 0})
    (result,) = records(run(spec, tmp_path / "run"), "harness")
    assert (result["task"], result["task_version"], result["num_fewshot"]) == ("own_choices", "2", 0)
    assert (result["num_questions"], result["num_available"]) == (4, 6)
    # The same prompt with the references 2, 3, 2, 3: whichever choice it takes, half of them are right.
    (score,) = [one for one in result["scores"] if one["metric"] == "acc"]
    assert (score["value"], score["filter"]) == (0.5, "none")


@pytest.mark.parametrize("is_named", [True, False], ids=["by the YAML file", "by code"])
def test_task_whose_metric_is_code_of_the_hub_is_refused(tmp_path, folder, is_named):
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "data.jsonl").write_text(json.dumps({"text": "1+1=", "target": "2"}))
    (tasks / "code.py").write_text("import evaluate\ncompute = evaluate.load('rouge').compute\n")
    metric = "rouge" if is_named else "!function code.compute"
    (tasks / "own.yaml").write_text(
        f"""task: own_text
dataset_path: json
dataset_kwargs:
  data_files: {{test: {tasks / "data.jsonl"}}}
test_split: test
output_type: generate_until
doc_to_text: text
doc_to_target: target
metric_list:
  - {{metric: {metric}, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1}}
"""
    )
    spec = spec_of(folder, "bare", harness={"tasks": ["own_text"]})
    with pytest.raises(AssertionError, match=r"metric 'rouge' is code that the task fetches from the hub"):
        run(spec, tmp_path / "run")


def test_unknown_task_is_refused_with_similar_names(tmp_path, folder):
    spec = spec_of(folder, "bare", harness={"tasks": ["gsm8kk"]})
    with pytest.raises(AssertionError, match=r"has no task 'gsm8kk' \(did you mean gsm8k.* -m lm_eval ls tasks` lists"):
        run(spec, tmp_path / "run")


def test_catalogue_has_the_names_of_the_tasks(tmp_path, monkeypatch):
    monkeypatch.delenv("HACRL_LM_EVAL_TASKS", raising=False)
    monkeypatch.setenv("HACRL_LM_EVAL", PYTHON)
    catalogue = write_catalogue(tmp_path / "tasks.json", Path(PYTHON))
    assert {"gsm8k", "arc_easy", "mmlu"} <= set(catalogue["tasks"])
    assert json.loads((tmp_path / "tasks.json").read_text()) == catalogue
