"""What makes large models fit changes no number: recomputed layers, AdamW in the machine's memory, idle agents."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.workers.tiny import make_agent, make_pair, make_spec, same_weights, train
from workers.model.loading import CPU, choose_device, recompute_layers
from workers.model.policy import Policy
from workers.trainer.trainer import Trainer


def trained(root: Path, pair: list[dict], **compute) -> Trainer:
    algorithm = {"name": "hacpo", "beta": 0.01, "delta": 0.8}
    spec = make_spec(root, pair, algorithm=algorithm, evaluation={"eval_interval": 0}, compute=compute)
    return train(spec, root / "-".join(["run", *map(str, compute.values())]))


@pytest.mark.parametrize(
    "compute",
    [{"gradient_checkpointing": True}, {"offload": "optimizer"}, {"offload": "idle"}, {"agent_devices": "own"}],
    ids=str,
)
def test_weights_are_the_same_bit_for_bit(tmp_path, compute):
    pair = make_pair(tmp_path)
    assert same_weights(trained(tmp_path, pair), trained(tmp_path, pair, **compute))


def test_offloaded_bfloat16_is_the_same_bit_for_bit(tmp_path):
    pair = make_pair(tmp_path)
    plain = trained(tmp_path, pair, dtype="bfloat16")
    both = {"dtype": "bfloat16", "offload": "both", "gradient_checkpointing": True}
    assert same_weights(plain, trained(tmp_path, pair, **both))


def test_a_recomputed_layer_keeps_its_input_only(tmp_path):
    folder = make_agent(tmp_path / "model", "llama")
    spec = make_spec(tmp_path, [{"name": "A", "model": str(folder)}])
    policy = Policy(spec.agents[0], spec, CPU)

    def kept() -> int:
        sizes: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            policy.model.model(input_ids=torch.tensor([[2, 3, 4, 5] * 8]), use_cache=False)
        return sum(sizes.values())

    before = kept()
    recompute_layers(policy.model)
    # A layer of this model keeps 4 x 48 + 6 x 32 + 2 x 32 + 2 x 16 numbers a token, its input is 32 of them.
    assert kept() < before / 3


def test_layers_that_cannot_be_recomputed_are_refused():
    with pytest.raises(ValueError, match=r"Linear has no layers .* set compute\.gradient_checkpointing to false"):
        recompute_layers(nn.Linear(2, 2))


def test_an_idle_agent_leaves_its_device_and_comes_back_once_for_each_call(tmp_path, monkeypatch):
    folder = make_agent(tmp_path / "model", "llama")
    spec = make_spec(tmp_path, [{"name": "A", "model": str(folder)}], compute={"offload": "idle"})
    policy = Policy(spec.agents[0], spec, CPU)
    moved: list[str] = []
    policy._rests, policy._home = True, torch.device("meta")
    monkeypatch.setattr(policy, "_move", lambda to: moved.append(to.type))
    with policy.at_work(), policy.at_work():
        assert moved == ["meta"]
    assert moved == ["meta", "cpu"]
    with pytest.raises(RuntimeError, match="out of luck"), policy.at_work():
        raise RuntimeError("out of luck")
    assert moved[-1] == "cpu"


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        ({}, [[0], [0], [0]]),
        ({"agent_devices": "own"}, [[0], [1], [2]]),
        ({"processes_per_agent": 2}, [[0, 1], [0, 1], [0, 1]]),
        ({"processes_per_agent": 2, "agent_devices": "own"}, [[0, 1], [2, 3], [0, 1]]),
    ],
    ids=str,
)
def test_processes_and_agents_take_the_gpus_in_turn(tmp_path, monkeypatch, compute, expected):
    spec = make_spec(tmp_path, make_pair(tmp_path), compute={"device": "cuda", **compute})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    ranks = range(spec.compute.processes_per_agent)
    assert [[choose_device(spec, agent, rank).index for rank in ranks] for agent in range(3)] == expected
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    if spec.compute.processes_per_agent > 1:
        with pytest.raises(ValueError, match="processes_per_agent is 2, one GPU each, but this machine has 1"):
            choose_device(spec)
