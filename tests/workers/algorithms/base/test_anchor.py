"""anchor own: the gate of the ratio at the start of the step, and a clip around the learner's own start."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.algorithms.base.contribution import WeightedRow, factors
from workers.algorithms.base.spec import AlgorithmSpec, MicroBatch
from workers.algorithms.registry import algorithms
from workers.contract.spec.run import RunSpec

BAND = 0.2


def rule(name: str = "signed", **settings) -> AlgorithmSpec:
    return algorithms()[name](name=name, beta=0.0, anchor="own", anchor_clip=BAND, **settings).filled(2, 1)


def batch(log_ratio: torch.Tensor, start: torch.Tensor, advantages: torch.Tensor, omega: float = 1.0) -> MicroBatch:
    """Shared rows of one token whose source's log-probability is 0; log_ratio, start: (b,)."""
    rows = len(log_ratio)
    one = torch.ones(rows)
    return MicroBatch(
        logps=log_ratio[:, None],
        mask=one[:, None],
        old_mean_logp=torch.zeros(rows),
        advantages=advantages,
        is_self=one < 0,
        omega=one * omega,
        source_lengths=one,
        start_mean_logp=start,
    )


def test_gradient_by_hand():
    # s0, r = s / s0, A, and the weight: g(s0) r A, 0 where r has left [.8, 1.2] in the direction of the update.
    cases = [
        (0.5, 1.0, 2.0, 0.5 * 1.0 * 2.0),
        (0.5, 1.1, 2.0, 0.5 * 1.1 * 2.0),
        (0.5, 1.3, 2.0, 0.0),
        (0.5, 0.7, 2.0, 0.5 * 0.7 * 2.0),  # moved against the update: it is brought back
        (0.1, 1.0, 2.0, 0.2 * 1.0 * 2.0),  # the floor
        (1.5, 1.0, -1.0, -1.0),
        (1.5, 0.7, -1.0, 0.0),
        (1.5, 1.3, -1.0, -1.3),
        (0.9, 1.0, -1.0, 0.0),  # the gate is 0
        (0.9, 1.19, -1.0, 0.0),  # s is above 1 now, s0 was not
    ]
    start = torch.tensor([math.log(case[0]) for case in cases])
    log_ratio = (start + torch.tensor([math.log(case[1]) for case in cases])).requires_grad_()
    advantages = torch.tensor([case[2] for case in cases])
    algorithm = rule()
    loss, stats = algorithm.loss(batch(log_ratio, start, advantages), 1, 10.0)
    loss.backward()
    expected = [case[3] for case in cases]
    assert (-10 * log_ratio.grad).tolist() == pytest.approx(expected, rel=1e-5)
    assert stats["weight"].tolist() == pytest.approx(expected, rel=1e-5)
    assert stats["start_ratio"].tolist() == pytest.approx([case[0] for case in cases], rel=1e-6)
    assert stats["clip_side"].tolist() == [0, 0, 1, -1, 0, 0, -1, 1, -1, -1]


@pytest.mark.parametrize("name", ["signed", "hacpo"])
def test_weights_without_torch_and_their_steps_are_the_losses_own(name):
    algorithm = rule(name, **({"cross_gate": "gamma"} if name == "hacpo" else {}), cross_weight=0.5)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2000, generator=generator)
    log_ratio = start + 0.3 * torch.randn(2000, generator=generator)
    log_ratio[:40] = torch.linspace(-14, 14, 40)  # some beyond the limit of 10
    advantages = torch.randn(2000, generator=generator)
    advantages[::17] = 0.0
    _, stats = algorithm.loss(batch(log_ratio, start, advantages, 0.7), 0, 2000.0)
    ratios, starts = stats["sequence_ratio"].tolist(), stats["start_ratio"].tolist()
    sides, weights = algorithm.weigh(False, 0, ratios, advantages.tolist(), 0.7, starts)
    assert weights == pytest.approx(stats["weight"].tolist(), rel=1e-5, abs=1e-30)
    assert [bool(weight) for weight in weights] == stats["gradient_flows"].tolist()
    assert sides == stats["clip_side"].tolist()
    assert 0 < sum(side != 0 for side in sides) < 2000
    for index in range(60, 160):
        row = WeightedRow(
            False, 0, ratios[index], advantages[index].item(), 0.7, weights[index], start_ratio=starts[index]
        )
        assert factors(algorithm.explain(row))[-1].product == pytest.approx(weights[index], rel=1e-6)


def test_before_any_move_it_is_the_gate_of_the_present_ratio():
    ratios, advantages = [0.3, 0.8, 1.3], [1.0, -1.0, -1.0]
    from_source = algorithms()["signed"](beta=0.0).filled(2, 1)
    assert rule().weigh(False, 0, ratios, advantages, 1.0, ratios) == from_source.weigh(False, 0, ratios, advantages)
    assert rule().weigh(False, 0, ratios, advantages) == from_source.weigh(False, 0, ratios, advantages)


def test_it_acts_only_where_there_is_a_gate():
    assert not algorithms()["hacpo"](anchor="own").measures_start
    assert algorithms()["hacpo"](anchor="own", cross_gate="signed").measures_start
    assert not algorithms()["signed"](anchor="own", sharing=False).measures_start
    assert not algorithms()["signed"]().uses("anchor_clip")


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> tuple[RunSpec, list[dict]]:
    """Contributions of a real run with two passes."""
    root = tmp_path_factory.mktemp("anchored")
    spec = make_spec(
        root,
        make_pair(root),
        rollout={"num_generations": 8},
        training={"steps": 3, "num_iterations": 2, "learning_rate": 3e-3},
        algorithm={"name": "signed", "anchor": "own", "anchor_clip": 0.05},
    )
    train(spec, root / "run")
    return spec, records(root / "run", "contribution")


@pytest.mark.slow
def test_real_run_records_the_start_and_its_weights_follow(real):
    spec, rows = real
    shared = [row for row in rows if row["agent"] != row["source"] and row["sequence_ratio"] is not None]
    assert all(row["start_ratio"] is None for row in rows if row["agent"] == row["source"])
    assert any(row["weight"] for row in shared)
    assert any(abs(row["sequence_ratio"] / row["start_ratio"] - 1) > 1e-4 for row in shared)
    for row in shared:
        place = (False, row["mini_batch"], [row["sequence_ratio"]], [row["advantage"]], row["omega"])
        assert spec.rule.weigh(*place, [row["start_ratio"]]).weights == pytest.approx([row["weight"]], rel=1e-6)
