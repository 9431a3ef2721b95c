"""Offload on a GPU: the same learning, and a GPU that is empty of agents whose turn it is not."""

from __future__ import annotations

import pytest
import torch

from tests.support.workers.tiny import make_agent, make_pair, make_spec, train, weights
from workers.model.policy import Policy

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("offload", ["optimizer", "idle", "both"])
def test_offloaded_agents_learn_the_same(tmp_path, offload):
    pair = make_pair(tmp_path)
    found = []
    for way in ("none", offload):
        compute = {"device": "cuda", "dtype": "bfloat16", "offload": way}
        training = {"learning_rate": 1e-4}
        spec = make_spec(tmp_path, pair, training=training, evaluation={"eval_interval": 0}, compute=compute)
        trainer = train(spec, tmp_path / way)
        found.append([{name: value.cpu() for name, value in weights(trainer, agent).items()} for agent in range(2)])
    for plain, moved in zip(*found, strict=True):
        # Moving changes nothing; AdamW on processors may round its float32 otherwise, a step of bfloat16 at most.
        assert all(torch.allclose(value, moved[name], rtol=2**-7, atol=1e-5) for name, value in plain.items())


def test_an_idle_agent_holds_no_memory_of_the_gpu(tmp_path):
    folder = make_agent(tmp_path / "model", "llama", hidden_size=256, intermediate_size=1024)
    spec = make_spec(tmp_path, [{"name": "A", "model": str(folder)}], compute={"device": "cuda", "offload": "idle"})
    policy = Policy(spec.agents[0], spec, torch.device("cuda", 0))

    def on_gpu() -> int:
        optimizer = policy.optimizer
        states = [value for state in optimizer.adamw.state.values() for value in state.values()]
        return sum(tensor.is_cuda for tensor in [*policy.model.parameters(), *optimizer.masters.values(), *states])

    assert on_gpu() == 0
    with policy.at_work():
        logps, _ = policy.token_logps([[2, 3]], [[4, 5, 6]])
        policy.optimizer.backward(-logps.sum())
        policy.optimizer.step(1e-4, is_sound=True)
        held = torch.cuda.memory_allocated()
        assert on_gpu() > 0
    assert on_gpu() == 0
    # At least weights in bfloat16, and three float32 numbers for each of them, are gone from there.
    assert held - torch.cuda.memory_allocated() >= 14 * policy.optimizer.num_trained
