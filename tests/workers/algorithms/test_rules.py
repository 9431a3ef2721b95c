"""Every rule and option beside plain HACPO, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.support.workers.losses import DOUBLE, algorithm, micro_batch, one_row
from workers.algorithms.base import tensors
from workers.algorithms.base.spec import Objective

# Two agents, two prompts, two rollouts each. Prompt 0: agent 0 earns (1, 0), agent 1 (0, 0); prompt 1: (1, 1), (1, 0).
REWARDS = torch.tensor([[[1.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]], dtype=DOUBLE)
VALID = torch.ones(2, 2, 2, dtype=torch.bool)
# P = (3/4, 1/4): omega(0, 1) = 3, omega(1, 0) = 1/3.
RATIO = torch.tensor([[1.0, 3.0], [1 / 3, 1.0]], dtype=DOUBLE)


def judged(**changes: Any) -> Objective:
    return algorithm(**changes).objective(REWARDS, VALID, RATIO)


# Advantages


def test_capability_baseline_by_hand():
    # Learner 0, prompt 0: (1 + 0 + 3 * 0 + 3 * 0) / 4 = 1/4; prompt 1: (1 + 1 + 3 * 1 + 0) / 4 = 5/4 > 1: own mean 1.
    found = judged(name="hacpo")
    assert found.baselines[0].tolist() == pytest.approx([0.25, 1.0])
    assert found.guarded[0].tolist() == [False, True]
    # Learner 1: (1/3 + 0 + 0 + 0) / 4 = 1/12; (1/3 + 1/3 + 1 + 0) / 4 = 5/12.
    assert found.baselines[1].tolist() == pytest.approx([1 / 12, 5 / 12])
    # Rewards of prompt 0: mean 1/4, squares 9/16 + 3/16 = 3/4, / 3 = 1/4, std 1/2. A_1 = (1 - 1/12) / .5 = 11/6.
    assert found.advantages[1][0, 0, 0].item() == pytest.approx(11 / 6, rel=3e-6)


@pytest.mark.parametrize("changes", [{"advantage": "plain"}, {"name": "naive_source"}, {"name": "naive_learner"}])
def test_plain_baseline_is_the_joint_mean_for_every_learner(changes):
    found = judged(**changes)
    for learner in range(2):
        assert found.baselines[learner].tolist() == [0.25, 0.75]
        assert not found.guarded[learner].any()
        # (1 - 1/4) / (1/2 + 1e-6) and (0 - 1/4) / (1/2 + 1e-6), whoever the source is.
        right, wrong = 0.75 / 0.500001, -0.25 / 0.500001
        assert found.advantages[learner][:, 0].flatten().tolist() == pytest.approx([right, wrong, wrong, wrong])


def test_cross_advantage_of_the_source_uses_the_sources_baseline():
    own, theirs = judged(), judged(cross_advantage="source")
    # Learner 0 sees agent 1's rollouts of prompt 0: with its own mu 1/4: -1/2; with agent 1's mu 1/12: -1/6.
    assert own.advantages[0][1, 0].tolist() == pytest.approx([-0.5, -0.5], rel=3e-6)
    assert theirs.advantages[0][1, 0].tolist() == pytest.approx([-1 / 6, -1 / 6], rel=3e-6)
    for learner in range(2):
        assert torch.equal(theirs.advantages[learner][learner], own.advantages[learner][learner])


@pytest.mark.parametrize("name", ["hacpo", "gspo", "grpo", "naive_source"])
def test_scale_of_rewards(name):
    # Joint: all 8 rewards: mean 1/2, squares 8 * 1/4 = 2, / 7: std sqrt(2/7). Agent 0 alone: (1, 0, 1, 1), mean 3/4,
    # squares 3 * 1/16 + 9/16 = 3/4, / 3 = 1/4: std 1/2.
    std = 0.5 if name in ("gspo", "grpo") else math.sqrt(2 / 7)
    batch, none = judged(name=name, scale_rewards="batch"), judged(name=name, scale_rewards="none")
    assert none.advantages[0][0, 0, 0].item() == pytest.approx(1 - none.baselines[0][0].item(), abs=1e-12)
    torch.testing.assert_close(batch.advantages[0] * (std + 1e-6), none.advantages[0], rtol=0, atol=1e-12)


def test_agents_alone_have_no_advantages_of_others():
    found = judged(name="grpo")
    assert not found.advantages[0][1].any()
    expected, _ = tensors.joint_advantages(REWARDS[:1])
    assert torch.equal(found.advantages[0][0], expected[0])


def test_unscorable_rollouts_count_nowhere_in_the_joint_mean():
    valid = VALID.clone()
    valid[1, 0] = False
    found, baseline = tensors.joint_advantages(REWARDS, valid=valid)
    assert baseline.tolist() == [0.5, 0.75]  # prompt 0: (1 + 0) / 2
    assert found[1, 0].tolist() == [0.0, 0.0]


# GRPO


def test_grpo_clips_each_token_by_hand():
    # Tokens r = (1.5, .9, 1), A = 1, band [.8, 1.28]: min(1.5, 1.28) = 1.28 clipped, .9, 1: mean 3.18 / 3 = 1.06.
    # Gradient by token: r / 3 where it flows: (0, .3, 1/3). Old log-probabilities are -1 each.
    ratios = torch.tensor([1.5, 0.9, 1.0], dtype=DOUBLE)
    logps = (ratios.log() - 1)[None].requires_grad_()
    batch = micro_batch(logps, old_mean_logp=-torch.ones(1), old_logps=torch.full((1, 3), -1.0, dtype=DOUBLE))
    loss, stats = algorithm(name="grpo").loss(batch, 0, 2)  # two planned rows: half
    loss.backward()
    assert loss.item() == pytest.approx(-0.53, abs=1e-12)
    assert logps.grad is not None
    assert logps.grad.flatten().tolist() == pytest.approx([0.0, -0.15, -1 / 6], abs=1e-12)
    assert stats["weight"].item() == pytest.approx(1.9 / 3, abs=1e-12)
    assert (stats["clipped_low"].item(), stats["clipped_high"].item()) == (0.0, pytest.approx(1 / 3))
    assert stats["sequence_ratio"].item() == pytest.approx((1.5 * 0.9) ** (1 / 3), rel=1e-12)
    assert stats["clipped_ratio"].item() == pytest.approx((1.28 * 0.9) ** (1 / 3), rel=1e-12)
    assert stats["clip_side"].item() == 1


def test_empty_epsilon_is_the_algorithms_own():
    own = {name: algorithm(name=name) for name in ("hacpo", "gspo", "gspox2", "grpo", "naive_source")}
    assert (own["grpo"].epsilon, own["grpo"].epsilon_high) == (0.2, 0.28)
    for name in ("hacpo", "gspo", "gspox2", "naive_source"):
        assert (own[name].epsilon, own[name].epsilon_high) == (3e-4, 4e-4)
    given = algorithm(name="grpo", epsilon=0.1, epsilon_high="")  # as the form sends an empty field
    assert (given.epsilon, given.epsilon_high) == (0.1, 0.28)


# Naive sharing


@pytest.mark.parametrize("name", ["naive_source", "naive_learner"])
def test_naive_sharing_clips_shared_rollouts_as_gspo_does(name):
    # s = 1.01 > 1.0004, A = 1: clipped, whatever omega is. s = .99, A = 1: min is the unclipped .99.
    loss, gradient, stats = one_row(1.01, 1.0, is_self=False, omega=5.0, name=name)
    assert (loss, gradient, stats["clip_side"]) == (pytest.approx(-1.0004), 0.0, 1)
    loss, gradient, _ = one_row(0.99, 1.0, is_self=False, omega=5.0, name=name)
    assert (loss, gradient) == (pytest.approx(-0.99), pytest.approx(-0.99))


# HACPO's options


def test_without_the_clip_the_ratio_itself_weighs():
    # s = .5, alpha 1: .5^2 * 2 = .5, where the clip would give .8^2 * 2 without a gradient. s = 2: 4 * 2 = 8.
    loss, gradient, stats = one_row(0.5, 2.0, is_self=False, clip_cross=False)
    assert (loss, gradient) == (pytest.approx(-0.5), pytest.approx(-0.5))
    assert (stats["clip_side"], stats["clipped_ratio"]) == (0, pytest.approx(0.5))
    assert one_row(2.0, 2.0, is_self=False, clip_cross=False)[1] == pytest.approx(-8.0)
    assert one_row(0.5, 2.0, is_self=False)[:2] == (pytest.approx(-1.28), 0.0)


def test_alpha_zero_leaves_the_ratio_once():
    assert one_row(0.9, 1.0, is_self=False, alpha=0.0)[1] == pytest.approx(-0.9)
    assert one_row(0.9, 1.0, is_self=False)[1] == pytest.approx(-0.81)


def test_no_stepwise_keeps_the_first_bound():
    # m = 3: 1 - .2 + 3 * .025 = .875, above s = .82; with delta_step 0 it stays .8.
    assert one_row(0.82, 1.0, is_self=False, m=3)[1] == 0.0
    assert one_row(0.82, 1.0, is_self=False, m=3, delta_step=0.0)[1] == pytest.approx(-(0.82**2))


@pytest.mark.parametrize("name", ["hacpo", "naive_source"])
def test_cross_kl_penalises_shared_rollouts(name):
    # ref - logp = log 2: k3 = 2 - log 2 - 1; advantage 0, so the penalty is the whole loss.
    settings = {"name": name, "beta": 0.1, "reference": math.log(2)}
    assert one_row(1.0, 0.0, is_self=False, **settings)[0] == 0.0
    assert one_row(1.0, 0.0, is_self=False, cross_kl=True, **settings)[0] == pytest.approx(0.1 * (1 - math.log(2)))
    assert one_row(1.0, 0.0, is_self=True, **settings)[0] == pytest.approx(0.1 * (1 - math.log(2)))


@pytest.mark.parametrize("name", ["hacpo", "naive_source"])
def test_source_length_divides_the_learners_sum(name):
    # Two tokens of log .9 each, one source token: log s = 2 log .9, s = .81; own length: .9.
    assert one_row(0.9, 1.0, is_self=False, name=name)[2]["sequence_ratio"] == pytest.approx(0.9)
    found = one_row(0.9, 1.0, is_self=False, name=name, ratio_length="source", source_length=1)
    assert found[2]["sequence_ratio"] == pytest.approx(0.81)
