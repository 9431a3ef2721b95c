"""Rollouts of several turns where a further process has a part: an agent of two processes, and the engine vLLM."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from tests.support.workers import environments
from tests.support.workers.tiny import WITHOUT_VLLM, make_spec, records, train
from tests.workers.agents.test_multi_process import exported

ROLLOUT = {"max_completion_length": 24, "max_prompt_length": 24, "environment": "calculator", "max_turns": 3}


def spec_of(root, agents, processes=1, **rollout):
    return make_spec(
        root,
        agents,
        rollout=ROLLOUT | {"environment_instructions": False} | rollout,
        training={"steps": 2, "learning_rate": 1e-3},
        evaluation={"eval_interval": 0, "max_questions": 4},
        compute={"processes_per_agent": processes, "device": "cpu", "num_threads": 1},
        telemetry={"rollout_interval": 1},
    )


def transcripts(run_dir) -> list[dict]:
    """The rollouts of a run; some have a call, the calculator's answer, and a turn after it."""
    rollouts = records(run_dir, "rollout")
    several = [one for one in rollouts if len(one["turns"]) > 1]
    assert len(several) >= 3
    for one in several:
        assert [turn["role"] for turn in one["turns"][:3]] == ["assistant", "tool", "assistant"]
        assert one["turns"][0]["text"].endswith(environments.CALL)
        assert one["turns"][1]["text"] == "7"
    return rollouts


@pytest.mark.full
def test_agents_of_two_processes_sample_and_learn_from_the_transcripts_of_one(tmp_path):
    agents = environments.make_callers(tmp_path)
    runs = {}
    for processes in (1, 2):
        train(spec_of(tmp_path, agents, processes), tmp_path / str(processes)).close()
        runs[processes] = transcripts(tmp_path / str(processes))
    kept = ("prompt_id", "agent", "sample", "reward", "turns", "num_tokens", "finish_reason")
    one, two = ([{key: row[key] for key in kept} for row in runs[processes]] for processes in (1, 2))
    assert one == two
    one, two = (exported(tmp_path / str(processes), step=2) for processes in (1, 2))
    differences = torch.cat([(one[name] - two[name]).abs().flatten() for name in one])
    # Adam makes a step of a gradient that is nothing but rounding: of one weight in 50,000 here.
    assert differences.max() < 1e-3
    assert (differences > 1e-5).float().mean() < 1e-3


@pytest.mark.full
@pytest.mark.skipif(find_spec("vllm") is None, reason=WITHOUT_VLLM)
@pytest.mark.parametrize("processes", [1, 2])
def test_vllm_samples_transcripts_by_the_policy_that_learns(tmp_path, processes):
    agents = environments.make_callers(tmp_path)
    train(spec_of(tmp_path, agents, processes, engine="vllm"), tmp_path / "run").close()
    transcripts(tmp_path / "run")
    for record in records(tmp_path / "run", "metrics"):
        if record["source"] is None:
            # Of the agent's own tokens, by the trainer's weights before the step.
            assert record["values"]["sampling_logp_difference/mean"] < 1e-4
