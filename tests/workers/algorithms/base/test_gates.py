"""Gates: each by hand, equal for tensors and for numbers, and in the loss the factor of the gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from workers.algorithms.base.contribution import WeightedRow, factors
from workers.algorithms.base.gates import GATES
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.base.tensors import MicroBatch
from workers.algorithms.registry import algorithms

RATIOS = (0.3, 0.5, 0.8, 1.0, 1.3)
# By gate: g at RATIOS for A > 0 and for A < 0, delta .8.
BY_HAND = {
    "signed": ((0.3, 0.5, 0.8, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0, 1.0)),
    "gamma": (
        tuple(s**2 * math.exp(3 * (1 - s)) for s in RATIOS),
        tuple(s**3 * math.exp(2 * (1 - s)) for s in RATIOS),
    ),
}
GATED = [*({"name": "hacpo", "cross_gate": gate, "delta": 0.8} for gate in GATES), {"name": "signed"}]


def rule(name: str, **settings) -> AlgorithmSpec:
    return algorithms()[name](name=name, beta=0.0, **settings).filled(2, 1)


def batch(log_ratio: torch.Tensor, advantages: torch.Tensor, *, is_self: bool = False, omega: float = 1.0):
    """One token a row, its old log-probability 0; log_ratio: (b,)."""
    rows = len(log_ratio)
    return MicroBatch(
        logps=log_ratio[:, None],
        mask=torch.ones(rows, 1),
        old_mean_logp=torch.zeros(rows),
        advantages=advantages,
        is_self=torch.full((rows,), is_self),
        omega=torch.full((rows,), omega),
        source_lengths=torch.ones(rows),
    )


def test_every_gate_has_numbers_by_hand():
    assert set(BY_HAND) == set(GATES)


@pytest.mark.parametrize("name", GATES)
def test_gate_by_hand_for_numbers_and_tensors(name):
    for sign, expected in zip((1.0, -1.0), BY_HAND[name], strict=True):
        found = np.broadcast_to(GATES[name].value(np.array(RATIOS), sign, 0.8, np), 5).tolist()
        assert found == pytest.approx(expected, rel=1e-12)
        s = torch.tensor(RATIOS, dtype=torch.float64)
        found = torch.as_tensor(GATES[name].value(s, torch.full_like(s, sign), 0.8, torch)).expand(5)
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)


def test_floor_of_the_signed_gate_holds_however_small_the_ratio_is():
    assert GATES["signed"].value(1e-9, 1.0, 0.8, np) == pytest.approx(0.2)
    assert rule("signed", floor=0.3).gate(1e-9, 1.0, 0, np) == pytest.approx(0.3)


# g at the largest and the smallest ratio that a run may allow, e^50 and e^-50 (about 0): for A > 0 and for A < 0.
AT_BOUNDS = {
    "signed": ((1.0, 0.2), (1.0, 0.0)),
    "gamma": ((0.0, 0.0), (0.0, 0.0)),
}


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize(("place", "sign"), [(0, 1.0), (1, -1.0)])
def test_every_gate_is_a_number_at_the_bounds_of_the_ratio(name, place, sign):
    expected = list(AT_BOUNDS[name][place])
    s = torch.tensor([50.0, -50.0]).exp()  # float32
    of_tensors = torch.as_tensor(GATES[name].value(s, torch.full_like(s, sign), 0.8, torch)).expand(2)
    assert of_tensors.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-20)
    of_numbers = GATES[name].value(s.numpy(), np.float32(sign), 0.8, np).tolist()
    assert of_numbers == pytest.approx(expected, rel=1e-6, abs=1e-20)
    algorithm = rule("hacpo", cross_gate=name, delta=0.8, max_log_ratio=50.0)
    log_ratio = torch.tensor([50.0, -50.0], requires_grad=True)
    loss, stats = algorithm.loss(batch(log_ratio, torch.full((2,), sign)), 0, 1.0)
    loss.backward()
    assert (-log_ratio.grad).tolist() == pytest.approx([sign * gate for gate in expected], rel=1e-6, abs=1e-20)
    assert stats["weight"].isfinite().all()


@pytest.mark.parametrize("settings", GATED, ids=str)
def test_gradient_is_the_gate_times_omega_times_advantage(settings):
    algorithm = rule(**settings, cross_weight=0.5)
    log_ratio = torch.tensor([math.log(s) for s in RATIOS] * 2, requires_grad=True)
    advantages = torch.tensor([1.5] * 5 + [-0.7] * 5)
    loss, stats = algorithm.loss(batch(log_ratio, advantages, omega=1.2), 1, 10.0)
    loss.backward()
    gates = [
        float(algorithm.gate(s, sign, 1, np)) * 1.2 * a * 0.5 for sign, a in ((1, 1.5), (-1, -0.7)) for s in RATIOS
    ]
    assert (-10 * log_ratio.grad).tolist() == pytest.approx(gates, rel=1e-5)
    assert stats["weight"].tolist() == pytest.approx(gates, rel=1e-5)
    assert stats["gradient_flows"].tolist() == [gate != 0 for gate in gates]


@pytest.mark.parametrize("settings", GATED, ids=str)
def test_weights_without_torch_are_the_losses_own(settings):
    algorithm = rule(**settings)
    generator = torch.Generator().manual_seed(0)
    log_ratio = torch.randn(2000, generator=generator)
    log_ratio[:40] = torch.linspace(-14, 14, 40)  # some beyond the limit of 10
    advantages = torch.randn(2000, generator=generator)
    advantages[::17] = 0.0
    _, stats = algorithm.loss(batch(log_ratio, advantages, omega=0.7), 0, 2000.0)
    sides, weights = algorithm.weigh(False, 0, stats["sequence_ratio"].tolist(), advantages.tolist(), 0.7)
    assert weights == pytest.approx(stats["weight"].tolist(), rel=1e-5, abs=1e-30)
    assert [bool(weight) for weight in weights] == stats["gradient_flows"].tolist()
    assert sides == stats["clip_side"].tolist()
    for index in range(60, 120):
        row = WeightedRow(
            False, 0, stats["sequence_ratio"][index].item(), advantages[index].item(), 0.7, weights[index]
        )
        assert factors(algorithm.explain(row))[-1].product == pytest.approx(weights[index], rel=1e-6)


@pytest.mark.parametrize("name", [name for name, cls in algorithms().items() if issubclass(cls, SharingSpec)])
def test_own_rows_and_runs_without_sharing_follow_gspo_in_every_sharing_rule(name):
    log_ratio = 0.0005 * torch.randn(300, generator=torch.Generator().manual_seed(1))
    advantages = torch.randn(300, generator=torch.Generator().manual_seed(2))
    rows = batch(log_ratio.requires_grad_(), advantages, is_self=True)
    expected, _ = rule("gspo").loss(rows, 0, 300.0)
    (gradient,) = torch.autograd.grad(expected, log_ratio)
    for changes in ({}, {"sharing": False}):
        loss, _ = rule(name, **changes).loss(rows, 0, 300.0)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
        torch.testing.assert_close(torch.autograd.grad(loss, log_ratio)[0], gradient)


@pytest.mark.parametrize("name", algorithms())
def test_one_agent_has_gspos_advantages_in_every_rule(name):
    rewards = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]])
    valid, ratio = torch.ones_like(rewards, dtype=torch.bool), torch.ones(1, 1)
    found = rule(name, scale_rewards="group").objective(rewards, valid, ratio)
    assert torch.equal(found.advantages[0], rule("gspo").objective(rewards, valid, ratio).advantages[0])
