"""HACPO's formulas against numbers worked out by hand; the equation is named in each test."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support.workers.losses import DOUBLE, algorithm, micro_batch, one_row
from workers.algorithms import hacpo
from workers.algorithms.base.capability import CapabilityTracker
from workers.algorithms.base.spec import CapabilityOptions


def rewards_of(*agents: list[list[float]]) -> torch.Tensor:
    return torch.tensor(agents, dtype=DOUBLE)


# Capability and ratio, Eqs. (8), (9)


def test_capability_is_the_mean_of_the_last_steps():
    # K = 2. Agent 0 earns means 1, 0, .5: after three steps (0 + .5) / 2 = .25. Agent 1: 0, .5, 1 -> .75.
    tracker = CapabilityTracker(2, CapabilityOptions(window=2))
    for first, second in [([1, 1], [0, 0]), ([0, 0], [0, 1]), ([0, 1], [1, 1])]:
        tracker.update(rewards_of([first], [second]))
    assert tracker.capability.tolist() == [0.25, 0.75]
    # omega(0, 1) = .25 / .75 = 1/3; omega(1, 0) = 3.
    assert tracker.ratio().tolist() == [[1.0, pytest.approx(1 / 3)], [pytest.approx(3.0), 1.0]]
    assert not tracker.clamped().any()


def test_clamped_ratio_is_marked():
    # P = (1, .05): 20 -> 10, and 1/20 -> .1.
    tracker = CapabilityTracker(2)
    tracker.update(rewards_of([[1.0] * 20], [[1.0] + [0.0] * 19]))
    assert tracker.ratio().tolist() == [[1.0, 10.0], [0.1, 1.0]]
    assert tracker.clamped().tolist() == [[False, True], [True, False]]


def test_two_agents_at_the_floor_have_ratio_one_and_are_flagged():
    tracker = CapabilityTracker(2)
    tracker.update(torch.zeros(2, 1, 4))
    assert tracker.capability.tolist() == [1e-8, 1e-8]
    assert tracker.ratio().tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert tracker.floored.all()
    assert tracker.clamped().tolist() == [[False, True], [True, False]]


def test_negative_rewards_count_as_zero_in_the_capability():
    # (max(-1, 0) + 1) / 2 = .5
    tracker = CapabilityTracker(1)
    tracker.update(rewards_of([[-1.0, 1.0]]))
    assert tracker.capability.tolist() == [0.5]


def test_step_without_a_valid_rollout_leaves_the_capability_unchanged():
    tracker = CapabilityTracker(2)
    tracker.update(rewards_of([[1.0, 0.0]], [[1.0, 1.0]]))
    valid = torch.tensor([[[False, False]], [[True, False]]])
    tracker.update(rewards_of([[0.0, 0.0]], [[0.0, 1.0]]), valid)
    # Agent 0 stays at .5. Agent 1: its one valid reward is 0, (1 + 0) / 2 = .5.
    assert tracker.capability.tolist() == [0.5, 0.5]


def test_ratio_is_one_while_warming_up():
    tracker = CapabilityTracker(2, CapabilityOptions(warmup_steps=1))
    tracker.update(rewards_of([[1.0, 1.0]], [[1.0, 0.0]]))
    assert tracker.ratio().tolist() == [[1.0, 1.0], [1.0, 1.0]]
    tracker.update(rewards_of([[1.0, 1.0]], [[1.0, 0.0]]))
    assert tracker.ratio()[0, 1].item() == 2.0


# Baseline and advantage, Eqs. (6), (7)


def test_uniform_group_teaches_nothing():
    # Without the rule, mu = (1 + 1 + 2 + 2) / 4 = 1.5 and every right answer would be punished.
    rewards = rewards_of([[1.0, 1.0]], [[1.0, 1.0]])
    ratio = torch.tensor([[1.0, 2.0], [0.5, 1.0]], dtype=DOUBLE)
    found, baseline, _ = hacpo.advantages(rewards, ratio, 0)
    assert baseline.tolist() == [1.0]
    assert found.tolist() == [[[0.0, 0.0]], [[0.0, 0.0]]]
    assert hacpo.baselines(rewards, ratio, 0).guarded.tolist() == [False]


def test_baseline_above_the_highest_reward_falls_back_to_the_own_mean():
    # omega(0, 1) = 10: (1 + 0 + 10 + 0) / 4 = 2.75 > 1, so mu = mean of own (1, 0) = .5.
    rewards = rewards_of([[1.0, 0.0]], [[1.0, 0.0]])
    ratio = torch.tensor([[1.0, 10.0], [0.1, 1.0]], dtype=DOUBLE)
    rules = hacpo.baselines(rewards, ratio, 0)
    assert rules.value.tolist() == [0.5]
    assert rules.guarded.tolist() == [True]
    # reward_max is the verifier's bound, not the largest reward seen: with bound 3 nothing is guarded.
    assert hacpo.baselines(rewards, ratio, 0, reward_max=3.0).value.tolist() == [2.75]


def test_unscorable_rollouts_count_nowhere():
    # The same group with and without an unscorable third rollout of either agent.
    ratio = torch.tensor([[1.0, 2.0], [0.5, 1.0]], dtype=DOUBLE)
    whole, mu, _ = hacpo.advantages(rewards_of([[1.0, 0.0]], [[0.0, 0.0]]), ratio, 0)
    valid = torch.tensor([[[True, True, False]], [[False, True, True]]])
    found, baseline, _ = hacpo.advantages(rewards_of([[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]]), ratio, 0, valid=valid)
    assert baseline.tolist() == mu.tolist()
    assert found[0, 0].tolist() == [*whole[0, 0].tolist(), 0.0]
    assert found[1, 0].tolist() == [0.0, *whole[1, 0].tolist()]


def test_group_without_any_valid_rollout_has_advantage_zero():
    found, baseline, _ = hacpo.advantages(torch.zeros(2, 1, 2), torch.ones(2, 2), 0, valid=torch.zeros(2, 1, 2).bool())
    assert baseline.tolist() == [0.0]
    assert not found.any()


# Loss, Eqs. (10) to (14), (47), (50)


def test_self_term_inside_the_band():
    # s = 1.0002, A = 2: o = 2.0004, d o / d log s = s A.
    loss, gradient, stats = one_row(1.0002, 2.0, is_self=True)
    assert loss == pytest.approx(-2.0004, abs=1e-12)
    assert gradient == pytest.approx(-2.0004, abs=1e-12)
    assert stats["weight"] == pytest.approx(2.0004, abs=1e-12)
    assert stats["clip_side"] == 0


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "flows"),
    [
        (1.01, 1.0, 1.0004, False),  # min(1.01, 1.0004): clipped
        (1.01, -1.0, -1.01, True),  # min(-1.01, -1.0004): unclipped is the minimum
        (0.99, 1.0, 0.99, True),
        (0.99, -1.0, -0.9997, False),
    ],
)
def test_self_term_outside_the_band(ratio, advantage, objective, flows):
    loss, gradient, stats = one_row(ratio, advantage, is_self=True)
    assert loss == pytest.approx(-objective, abs=1e-12)
    assert gradient == pytest.approx(-objective if flows else 0.0, abs=1e-12)
    assert stats["weight"] == pytest.approx(objective if flows else 0.0, abs=1e-12)
    assert stats["clip_side"] == (1 if ratio > 1 else -1)


def test_cross_term_inside_the_band():
    # s = .9, A = 2, omega = .5, alpha = 1: o = .9 * .9 * .5 * 2 = .81; gradient by log s the same .81.
    loss, gradient, stats = one_row(0.9, 2.0, is_self=False, omega=0.5)
    assert loss == pytest.approx(-0.81, abs=1e-12)
    assert gradient == pytest.approx(-0.81, abs=1e-12)
    assert stats["weight"] == pytest.approx(0.81, abs=1e-12)
    # alpha = 3, cross_weight = .25: .9^4 * .5 * 2 * .25 = .6561 / 4 = .164025.
    loss, gradient, _ = one_row(0.9, 2.0, is_self=False, omega=0.5, alpha=3.0, cross_weight=0.25)
    assert (loss, gradient) == pytest.approx((-0.164025, -0.164025), abs=1e-12)


def test_lower_bound_rises_with_every_update():
    # Eq. (14): .8 at m = 0; .85 at m = 2, where s = .82 is below it and teaches nothing.
    assert one_row(0.82, 1.0, is_self=False, m=0)[1] == pytest.approx(-(0.82**2), abs=1e-12)
    loss, gradient, stats = one_row(0.82, 1.0, is_self=False, m=2)
    assert loss == pytest.approx(-(0.85**2), abs=1e-12)  # the logged objective is the clipped one
    assert gradient == 0.0
    assert stats["clip_side"] == -1
    assert stats["clipped_ratio"] == pytest.approx(0.85)
    assert stats["weight"] == 0.0
    assert algorithm().shared_band(100) == (1.0, 1.0)


def test_cross_rollout_is_never_weighted_up():
    loss, gradient, stats = one_row(1.3, 1.0, is_self=False)
    assert (loss, gradient, stats["clip_side"], stats["clipped_ratio"]) == (-1.0, 0.0, 1, 1.0)


def test_log_ratio_is_clamped():
    # log s = 12 is cut to 10: s = e^10, clipped to 1, and no gradient in any mode.
    loss, gradient, stats = one_row(math.exp(12), -1.0, is_self=False, cross_clip_gradient="keep")
    assert (loss, gradient, stats["weight"]) == (1.0, 0.0, 0.0)
    assert stats["sequence_ratio"] == pytest.approx(math.exp(10))


def test_bfloat16_logps_are_reduced_in_float32():
    batch = micro_batch(torch.zeros(1, 3, dtype=torch.bfloat16), old_mean_logp=torch.tensor([2e-4]))
    loss, stats = algorithm().loss(batch, 0, 1)
    assert loss.dtype == torch.float32
    assert stats["sequence_ratio"].item() == pytest.approx(math.exp(-2e-4), abs=1e-7)  # bfloat16 would say 1


# One agent
