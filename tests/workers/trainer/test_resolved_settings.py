"""The trainer decides once what a run leaves to the machine; a checkpoint keeps it, on whatever machine it resumes."""

from __future__ import annotations

import json
from typing import Any

from tests.support.workers.tiny import make_pair, make_spec, train
from workers.contract.memory.machine import Machine
from workers.contract.spool import read_spool
from workers.questions.dataset import Question
from workers.trainer import preflight


def started(run_dir: Any) -> list[Any]:
    records = (record for record in read_spool(run_dir) if record["type"] == "started")
    return [record["settled"] for record in records]


def test_resumed_run_keeps_what_its_first_machine_decided(tmp_path, monkeypatch):
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"steps": 2}, checkpoint={"save_steps": 1})
    run_dir = tmp_path / "run"
    train(spec, run_dir)
    first = {
        "rollout": {"engine": "transformers", "rollout_batch_size": 512},
        "compute": {"agent_devices": "shared", "gradient_checkpointing": False, "placement": "local"},
        "training": {"tokens_per_micro_batch": 0},
    }
    state = json.loads((run_dir / "checkpoints/step-000002/state/trainer.json").read_text())
    assert state["settled"] == first
    gpus = Machine(gpus=(80 * 2**30,) * 2, memory=2**40, has_vllm=True)
    monkeypatch.setattr(preflight, "this_machine", lambda spec: gpus)
    train(spec, run_dir, attempt=2)
    assert started(run_dir) == [first, first]


def test_a_run_that_starts_asks_the_machine(tmp_path, monkeypatch):
    gpus = Machine(gpus=(80 * 2**30,) * 2, memory=2**40, has_vllm=True)
    monkeypatch.setattr(preflight, "this_machine", lambda spec: gpus)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda index: (80 * 2**30, 80 * 2**30))
    spec = make_spec(tmp_path, make_pair(tmp_path), rollout={"max_completion_length": 1025}, training={"steps": 10})
    models = preflight.empty_models(spec)
    values = preflight.resolved_here(spec, models)
    assert values["rollout"]["engine"] == "vllm"
    assert preflight.engine_reason(spec, models) == (
        "rollout.engine auto is vllm: models or responses are large and the weights fit"
    )
    assert values["compute"] == {"agent_devices": "own", "gradient_checkpointing": True, "placement": "processes"}


def test_evaluated_questions_come_from_the_whole_file_unless_the_first_are_chosen(tmp_path):
    pair = make_pair(tmp_path)
    questions = [Question(str(index), f"question {index}", "1") for index in range(100)]
    few = {"max_questions": 10}
    chosen = preflight.evaluated(make_spec(tmp_path, pair, evaluation=few), questions)
    places = [int(question.id) for question in chosen]
    assert places == sorted(places)
    assert len(places) == 10
    assert places[-1] >= 50  # by a hash of the texts: the same ones in every run
    first = make_spec(tmp_path, pair, evaluation={**few, "question_choice": "first"})
    assert preflight.evaluated(first, questions) == questions[:10]
    assert preflight.evaluated(make_spec(tmp_path, pair, evaluation={"max_questions": 0}), questions) == questions
