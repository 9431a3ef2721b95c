"""The real lm-evaluation-harness, where it is installed: its command takes our settings, and we read its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.workers.tiny import make_agent, records
from workers.contract.repository import ROOT
from workers.contract.spec.run import RunSpec

DATA = Path(os.environ.get("HACRL_DATA") or ROOT / "var").expanduser()
PYTHON = os.environ.get("HACRL_LM_EVAL") or str(DATA / "lm_eval" / "bin" / "python")
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="lm-evaluation-harness is not on this machine"),
]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A random model without a chat template, and its twin with one."""
    root = tmp_path_factory.mktemp("models")
    for name in ("bare", "chat"):
        make_agent(root / name, "qwen3")
    (root / "chat" / "chat_template.jinja").write_text(TEMPLATE)
    return root


def run(model: Path, run_dir: Path, **harness: Any) -> Path:
    values = {
        "agents": [{"name": "one", "model": str(model)}],
        "data": {"train_path": "-"},
        "training": {"steps": 0},
        "compute": {"device": "cpu", "num_threads": 1},
        "harness": harness,
    }
    path = run_dir.parent / f"{run_dir.name}.json"
    path.write_text(RunSpec.model_validate(values).to_json())
    environment = os.environ | {"HACRL_LM_EVAL": PYTHON, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {"HACRL_LM_EVAL_TASKS": str(run_dir.parent / "tasks"), "HF_HOME": str(run_dir.parent / "hf")}
    command = [sys.executable, "-m", "workers", str(path), str(run_dir)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, f"{records(run_dir, 'finished')}\n{ended.stdout[-3000:]}\n{ended.stderr[-6000:]}"
    return run_dir


def write_task(folder: Path, rows: list[dict[str, Any]], settings: str) -> None:
    """A task `own` of the operator's folder."""
    folder.mkdir()
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "own.yaml").write_text(
        f"""task: own
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder / "data.jsonl"}}}
test_split: test
doc_to_text: text
metadata: {{version: 2}}
{settings}
"""
    )


@pytest.mark.parametrize("name", ["bare", "chat"])
def test_own_task_of_the_operators_folder_is_evaluated(tmp_path, folder, name):
    rows = [{"text": "1+1=", "options": ["2", "3"], "gold": place % 2} for place in range(6)]
    settings = "output_type: multiple_choice\ndoc_to_choice: options\ndoc_to_target: gold\nmetric_list: [{metric: acc}]"
    write_task(tmp_path / "tasks", rows, settings)
    (result,) = records(run(folder / name, tmp_path / "run", tasks=["own"], limit=4, num_fewshot=0), "harness")
    assert (result["task"], result["task_version"], result["num_fewshot"]) == ("own", "2", 0)
    assert (result["num_questions"], result["num_available"]) == (4, 6)
    assert (result["has_chat_template"], result["version"][0].isdigit()) == (name == "chat", True)
    # The same prompt with the references 2, 3, 2, 3: whichever choice it takes, half of them are right.
    (score,) = [one for one in result["scores"] if one["metric"] == "acc"]
    assert (score["value"], score["filter"]) == (0.5, "none")


@pytest.mark.parametrize("is_named", [True, False], ids=["by the YAML file", "by code"])
def test_task_whose_metric_is_code_of_the_hub_is_refused(tmp_path, folder, is_named):
    metric = "rouge" if is_named else "!function code.compute"
    settings = f"output_type: generate_until\ndoc_to_target: target\nmetric_list: [{{metric: {metric}}}]"
    write_task(tmp_path / "tasks", [{"text": "1+1=", "target": "2"}], settings)
    (tmp_path / "tasks" / "code.py").write_text("import evaluate\ncompute = evaluate.load('rouge').compute\n")
    with pytest.raises(AssertionError, match=r"metric 'rouge' is code that the task fetches from the hub"):
        run(folder / "bare", tmp_path / "run", tasks=["own"])


def test_unknown_task_is_named_by_the_harness_itself(tmp_path, folder):
    with pytest.raises(AssertionError, match=r"ended with status 1: ValueError: Tasks not found: gsm8kk"):
        run(folder / "bare", tmp_path / "run", tasks=["gsm8kk"])
