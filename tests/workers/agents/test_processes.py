"""Each agent in a process of its own, without Ray: the same bits as in one process, and what a loss costs."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.workers.endings import assert_same_end, last_records
from tests.support.workers.processes import forked as forked
from tests.support.workers.tiny import HashVerifier, make_agent, make_pair, make_spec, records, train
from tests.workers.trainer.test_process import ENVIRONMENT, wait_for
from workers.agents.messages import AgentLost
from workers.agents.multi_process import AgentFailed
from workers.agents.placement import place
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.contract.trainer_process import start_trainer
from workers.trainer.stop_signals import StopFlag
from workers.trainer.trainer import Trainer

pytestmark = pytest.mark.usefixtures("forked")
CHANGES: dict[str, Any] = {
    "algorithm": {"beta": 0.01},
    "rollout": {"rollout_batch_size": 4},  # evaluations in two blocks
    "training": {"steps": 3},
    "checkpoint": {"save_steps": 1, "keep": 3},
    "telemetry": {"alignment_interval": 2},
}


def apart(spec: RunSpec) -> RunSpec:
    return spec.model_copy(update={"compute": spec.compute.model_copy(update={"placement": "processes"})})


def trained(spec: RunSpec, run_dir: Path, attempt: int = 1) -> Path:
    train(spec, run_dir, attempt).close()
    return run_dir


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}


class Kills(HashVerifier):
    """Kills the second agent's process while its call number `call` is verified."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self.left, self.trainer = call, None

    def score(self, completions, answers):
        self.left -= 1
        if not self.left:
            os.kill(self.trainer.agents[1]._processes[0].pid, signal.SIGKILL)
        return super().score(completions, answers)


@pytest.mark.slow
def test_run_whose_agent_is_killed_resumes_and_ends_as_in_one_process_bit_for_bit(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path), **CHANGES)
    expected, run_dir, before = trained(spec, tmp_path / "local"), tmp_path / "apart", children()
    run_dir.mkdir()
    verifier = Kills(4 + 2 * 2)  # each agent's evaluation in two blocks comes first, then two steps
    trainer = Trainer(apart(spec), run_dir, SpoolWriter(run_dir, 1), verifier, StopFlag())  # type: ignore[arg-type]
    verifier.trainer = trainer
    with pytest.raises(AgentLost, match="the process of Llama ended by signal 9 in "):
        trainer.train()
    trainer.close()
    assert children() == before
    assert records(run_dir, "checkpoint")
    assert_same_end(trained(apart(spec), run_dir, attempt=2), expected)
    assert last_records(run_dir, "answers") == last_records(expected, "answers")
    assert children() == before


@pytest.mark.slow
def test_agents_work_at_the_same_time_and_their_memory_is_counted(tmp_path):
    spec = apart(make_spec(tmp_path, make_pair(tmp_path)))
    before = children()
    placement = place(spec, tmp_path)
    try:
        alone = psutil.Process().memory_info().rss
        assert placement.used_bytes()[0] > alone + 2 * 50 * 2**20
        barrier = threading.Barrier(len(spec.agents), timeout=60)  # broken if one call waits for the other

        def call(agent):
            barrier.wait()
            return agent.describe()["architecture"]

        waits = placement.begin([lambda agent=agent: call(agent) for agent in placement.agents])
        assert [wait() for wait in waits] == ["Qwen3ForCausalLM", "LlamaForCausalLM"]
    finally:
        placement.close()
    assert children() == before


@pytest.mark.full
@pytest.mark.parametrize("steps", [0, 100_000])
def test_run_of_a_quick_and_a_slow_agent_completes_or_stops(tmp_path, steps):
    agents = make_pair(tmp_path)
    slow = make_agent(tmp_path / "slow", "llama", seed=3, hidden_size=256, num_hidden_layers=16)
    agents[1]["model"] = str(slow)
    changes: dict[str, Any] = {"training": {"steps": steps}, "rollout": {"rollout_batch_size": 2}}  # several blocks
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(apart(make_spec(tmp_path, agents, **changes)).to_json())
    trainer = start_trainer(run_dir, 1, environment=ENVIRONMENT)
    try:
        if steps:
            wait_for(run_dir, "progress", trainer.process)
            trainer.request_stop()
        assert trainer.process.wait(60) == 0
    finally:
        trainer.kill()
    (finished,) = records(run_dir, "finished")
    assert finished["outcome"] == ("stopped" if steps else "completed")
    sizes = [record["resident_bytes"] for record in records(run_dir, "progress")]
    assert min(sizes) > 3 * 50 * 2**20  # the trainer and both agents
    assert len(sizes) == 6 or steps  # 3 blocks of 2 questions, by agent


@pytest.mark.slow
def test_agent_that_cannot_load_ends_its_peers(tmp_path):
    pair = make_pair(tmp_path)
    spec = apart(make_spec(tmp_path, pair))
    before = children()
    (Path(pair[1]["model"]) / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(AgentFailed, match=r"the process of Llama failed in load: .*SafetensorError"):
        place(spec, tmp_path)
    assert children() == before
