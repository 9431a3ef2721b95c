"""What holds for every registered algorithm: alone it is its own baseline, it resumes, and it survives bad peers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.marks import in_full
from tests.support.workers.tiny import make_spec, records, same_weights, train, weights
from tests.workers.trainer.test_algorithms import MissingAgent
from workers.algorithms.base.gates import GATES
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.registry import algorithms
from workers.trainer.trainer import Trainer
from workers.trainer.trust import Trust

pytestmark = pytest.mark.slow
# Every algorithm, and HACPO with every gate.
GATED = [pytest.param({"name": "hacpo", "cross_gate": gate}, marks=pytest.mark.full) for gate in GATES]
SHARING: list[Any] = [*({"name": name} for name, cls in algorithms().items() if issubclass(cls, SharingSpec)), *GATED]
# Their own terms differ from GRPO's in the loss of a token alone.
LIKE_GRPO = {"cispo", "dapo", "dr_grpo", "sapo"}
EVERY: list[Any] = [
    *(pytest.param({"name": name}, marks=[pytest.mark.full][: name in LIKE_GRPO]) for name in algorithms()),
    *GATED,
]
OTHERS = [{"name": name} for name in algorithms() if name != "hacpo"]


def trained(root, agents, folder: str, /, attempt: int = 1, **sections: Any) -> Trainer:
    sections = {"training": {"steps": 2, "learning_rate": 1e-3}, **sections}
    return train(make_spec(root, agents, **sections), root / folder, attempt)


@pytest.fixture(scope="module")
def by_gspo(tmp_path_factory, pair) -> dict[int, Trainer]:
    """What GSPO teaches one agent, and each of two."""
    settings = {"name": "gspo", "beta": 0.01}
    return {n: trained(tmp_path_factory.mktemp("gspo"), pair[:n], "run", algorithm=settings) for n in (1, 2)}


@pytest.mark.parametrize("algorithm", SHARING, ids=str)
def test_sharing_switched_off_is_gspo_bit_for_bit(tmp_path, pair, by_gspo, algorithm):
    apart = trained(tmp_path, pair, "apart", algorithm={**algorithm, "sharing": False, "beta": 0.01})
    assert same_weights(apart, by_gspo[2])


@pytest.mark.parametrize("algorithm", SHARING, ids=str)
def test_one_agent_learns_as_by_gspo(tmp_path, pair, by_gspo, algorithm):
    one = trained(tmp_path, pair[:1], "one", algorithm={**algorithm, "beta": 0.01})
    for name, value in weights(one, 0).items():
        torch.testing.assert_close(value, weights(by_gspo[1], 0)[name], rtol=0, atol=2e-5)


@pytest.mark.parametrize("algorithm", EVERY, ids=str)
def test_resumed_run_repeats_the_uninterrupted_one_bit_for_bit(tmp_path, pair, algorithm):
    sections = {"algorithm": algorithm, "training": {"steps": 4}, "checkpoint": {"save_steps": 2, "keep": 2}}
    whole = trained(tmp_path, pair, "run", **sections)
    folder = tmp_path / "run" / "checkpoints"
    (folder / "step-000004").rename(folder / "gone")
    resumed = trained(tmp_path, pair, "run", attempt=2, **sections)
    assert same_weights(resumed, whole)
    ends = [
        [record["values"] for record in records(tmp_path / "run", "metrics") if record["step"] == 4 and is_of(record)]
        for is_of in (lambda record: record["attempt"] == 1, lambda record: record["attempt"] == 2)
    ]
    assert ends[0] == ends[1] != []


@pytest.mark.parametrize("algorithm", SHARING, ids=str)
def test_agents_without_trusted_sources_learn_as_without_sharing(tmp_path, pair, algorithm, monkeypatch):
    alone = trained(tmp_path, pair, "alone", algorithm={**algorithm, "sharing": False})
    shared = trained(tmp_path, pair, "shared", algorithm=algorithm)
    monkeypatch.setattr(Trust, "trusted_sources", lambda self, learner: [source == learner for source in range(2)])
    isolated = trained(tmp_path, pair, "isolated", algorithm={**algorithm, "peer_quarantine": True})
    assert same_weights(isolated, alone)
    assert not same_weights(shared, alone)


@pytest.mark.parametrize("algorithm", SHARING, ids=str)
def test_a_missing_peer_and_an_audit_leave_the_others_learning(tmp_path, pair, algorithm, monkeypatch):
    MissingAgent(monkeypatch, "Llama", 1)
    options = {"on_missing_source": "degrade", "audit_share": 1.0, "peer_quarantine": True}
    trained(tmp_path, pair, "run", training={"steps": 3}, algorithm={**algorithm, **options})
    rows = [row for row in records(tmp_path / "run", "contribution") if row["step"] == 2]
    assert {row["source"] for row in rows} == {"Qwen"}
    assert {row["agent"] for row in rows} == {"Qwen", "Llama"}


@pytest.mark.parametrize("algorithm", [{"name": "hacpo"}, *in_full(*OTHERS), *GATED], ids=str)
def test_lora_agents_learn(tmp_path, pair, algorithm):
    agents = [{**agent, "lora_rank": 2} for agent in pair]
    before = trained(tmp_path, agents, "before", algorithm=algorithm, training={"steps": 1, "learning_rate": 1e-9})
    after = trained(tmp_path, agents, "after", algorithm=algorithm, training={"steps": 1, "learning_rate": 1e-2})
    assert not same_weights(before, after)
    assert all(value.isfinite().all() for agent in range(2) for value in weights(after, agent).values())
