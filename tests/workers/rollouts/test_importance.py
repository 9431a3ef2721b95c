"""Truncated importance weights: their numbers, where they enter, and what a run with a foreign engine makes of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.agents import local
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.base.tensors import MicroBatch
from workers.algorithms.registry import algorithms
from workers.rollouts.engine import TransformersEngine, truncated_weight
from workers.rollouts.sampler import Sample, SampleRequest

SHIFT = 0.5  # nats by which the foreign engine's log-probabilities are too low


@pytest.mark.parametrize(
    ("trainer", "engine", "cap", "expected"),
    [
        (-1.0, -1.0, 2.0, 1.0),
        (-1.0, -1.5, 2.0, 1.6487213),  # e^0.5
        (-1.5, -1.0, 2.0, 0.6065307),  # e^-0.5: what the trainer likes less weighs less
        (-1.0, -2.0, 2.0, 2.0),  # e^1 = 2.718, cut
        (-1.0, -5000.0, 2.0, 2.0),  # e^4999 is no number
        (-5000.0, -1.0, 2.0, 0.0),
    ],
)
def test_weight_is_the_ratio_of_mean_probabilities_up_to_the_cap(trainer, engine, cap, expected):
    assert truncated_weight(trainer, engine, cap) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("name", ["grpo", "gspo", "hacpo", "naive_source"])
def test_a_scaled_advantage_scales_the_rows_own_loss_and_nothing_else(name):
    """What `updates` builds on: every rule's objective of an own row is proportional to its advantage."""
    algorithm = algorithms()[name](name=name, beta=0.1, epsilon=0.1, epsilon_high=0.1)
    logps = torch.tensor([[-1.0, -0.5], [-0.2, -0.9], [-2.0, -0.1]])
    batch = MicroBatch(
        logps=logps,
        mask=torch.ones(3, 2, dtype=torch.bool),
        old_mean_logp=torch.tensor([-0.7, -0.9, -1.0]),  # one inside the band, one above, one below
        advantages=torch.tensor([1.0, 0.5, -1.5]),
        is_self=torch.ones(3, dtype=torch.bool),
        omega=torch.ones(3),
        source_lengths=torch.full((3,), 2),
        ref_logps=logps - 0.1,
        old_logps=logps + torch.tensor([[0.05], [-0.3], [0.3]]),
    )
    without_kl = algorithm.model_copy(update={"beta": 0.0})

    def loss(rule: AlgorithmSpec, scale: float) -> float:
        return rule.loss(replace(batch, advantages=scale * batch.advantages), 0, 3.0)[0].item()

    assert loss(without_kl, 1.7) == pytest.approx(1.7 * loss(without_kl, 1.0), rel=1e-5)
    assert loss(without_kl, 1.0) != 0
    kl = [loss(algorithm, scale) - loss(without_kl, scale) for scale in (1.0, 1.7)]
    assert kl[0] == pytest.approx(kl[1], abs=1e-6)
    assert kl[0] > 1e-4


class ForeignEngine(TransformersEngine):
    """Samples as the trainer does, and tells log-probabilities that are not the trainer's."""

    has_own_weights = True

    def sample(self, request: SampleRequest) -> list[Sample]:
        found = super().sample(request)
        return [replace(one, logps=[value - SHIFT for value in one.logps]) for one in found]


def foreign(tmp_path, monkeypatch, name: str, **rollout: Any):
    """A run of one step whose rollouts come from ForeignEngine; its folder."""
    monkeypatch.setattr(local, "make_engine", lambda policy, spec, device: ForeignEngine(policy))
    monkeypatch.setattr("workers.model.policy.Policy.sampling_logps_are_exact", False)
    root = tmp_path / name
    root.mkdir()
    spec = make_spec(root, make_pair(root), rollout=rollout, training={"steps": 1}, telemetry={"alignment_interval": 0})
    train(spec, root / "run")
    return root / "run"


def own_metrics(run_dir, kind: str = "values") -> list[dict[str, Any]]:
    return [record[kind] for record in records(run_dir, "metrics") if record["source"] is None]


def test_a_foreign_engine_is_measured_and_logged(tmp_path, monkeypatch):
    run_dir = foreign(tmp_path, monkeypatch, "told")
    for values in own_metrics(run_dir):
        assert values["sampling_logp_difference/mean"] == pytest.approx(SHIFT, abs=1e-5)
        assert values["engine_logp_difference"] == pytest.approx(SHIFT, abs=1e-5)
        assert "importance_weight/mean" not in values
    told = [record["message"] for record in records(run_dir, "log") if record["incident"] == "engine"]
    assert len(told) == 2  # of both agents
    assert "after step 1 its rollout engine's log-probabilities are 0.50 nats away from the trainer's" in told[0]


def test_what_it_gets_wrong_does_not_reach_the_ratios(tmp_path, monkeypatch):
    rows = records(foreign(tmp_path, monkeypatch, "ratios"), "contribution")
    own = [row["sequence_ratio"] for row in rows if row["agent"] == row["source"] and row["mini_batch"] == 0]
    assert max(abs(ratio - 1) for ratio in own if ratio is not None) < 1e-5


@pytest.mark.parametrize(("cap", "weight"), [(2.0, math.exp(SHIFT)), (1.2, 1.2)])
def test_correction_weighs_own_rollouts_only(tmp_path, monkeypatch, cap, weight):
    plain = foreign(tmp_path, monkeypatch, "plain")
    corrected = foreign(tmp_path, monkeypatch, "corrected", importance_correction="truncate", importance_cap=cap)
    for values in own_metrics(corrected):
        assert values["importance_weight/mean"] == pytest.approx(weight, abs=1e-4)
        assert values["importance_weight/max"] == pytest.approx(weight, abs=1e-4)
    for ratios in own_metrics(corrected, "ratios"):
        capped, rollouts = ratios["importance_weight/capped_frac"]
        assert rollouts > 0
        assert capped == (rollouts if weight == cap else 0)
    pairs = list(zip(records(plain, "contribution"), records(corrected, "contribution"), strict=True))
    first = [(a, b) for a, b in pairs if a["mini_batch"] == 0 and a["weight"]]
    assert {a["agent"] == a["source"] for a, _ in first} == {True}  # own rollouts come first
    for a, b in first:
        assert b["weight"] == pytest.approx(weight * a["weight"], rel=1e-4)
        assert b["advantage"] == a["advantage"]
