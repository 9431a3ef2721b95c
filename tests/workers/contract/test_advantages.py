"""Advantages without torch: held against the rules that the trainer judges by, and against a real run's rows."""

from __future__ import annotations

import itertools

import pytest
import torch

from workers.algorithms import hacpo
from workers.algorithms.base.capability import CapabilityTracker
from workers.algorithms.base.contribution import float32
from workers.algorithms.base.spec import CapabilityOptions
from workers.algorithms.hacpo import Hacpo
from workers.contract import advantages

N, PROMPTS, PER_PROMPT = 3, 40, 4


def world(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards, (n, B, G), and which are valid; agents of unlike strength. Even seeds: 0, 1 and a few halves; odd ones:
    any in tenths, with some uniform prompts."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.tensor([0.15, 0.5, 0.9])[:, None, None]
    rewards = (torch.rand(N, PROMPTS, PER_PROMPT, generator=generator) < chance).float()
    rewards[:, ::7] = (rewards[:, ::7] + 0.5).clamp(max=1.0)
    if seed % 2:
        graded = (torch.rand(N, PROMPTS, PER_PROMPT, generator=generator) + chance) / 1.9
        rewards = (10 * graded.clamp(0, 1)).round() / 10
        rewards[:, 5::9] = 0.3
    return rewards, torch.rand(N, PROMPTS, PER_PROMPT, generator=generator) < 0.9


def groups(rewards: torch.Tensor, valid: torch.Tensor) -> list[advantages.RewardGroup]:
    return [
        advantages.RewardGroup({j: rewards[j, q][valid[j, q]].tolist() for j in range(N) if valid[j, q].any()})
        for q in range(PROMPTS)
    ]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_advantages_are_the_rules(scale, is_plain, seed):
    algorithm = Hacpo(scale_rewards=scale, advantage="plain" if is_plain else "capability")
    rewards, valid = world(seed)
    tracker = CapabilityTracker(N)
    tracker.update(rewards, valid)
    ratio = tracker.ratio()
    judged = algorithm.objective(rewards, valid, ratio)
    heard = range(N)
    guarded = 0
    every = [value for group in groups(rewards, valid) for value in group.values(heard)]
    for learner in range(N):
        omega = {j: 1.0 if is_plain else float32(ratio[learner, j].item()) for j in heard}
        for q, group in enumerate(groups(rewards, valid)):
            mu = advantages.baseline(group, heard, learner, omega)
            guarded += bool(judged.guarded[learner][q])
            assert mu == pytest.approx(judged.baselines[learner][q].item(), rel=3e-7)
            by = advantages.divisor(every if scale == "batch" else group.values(heard), scale)
            for j, i in itertools.product(heard, range(PER_PROMPT)):
                if valid[j, q, i]:
                    (found,) = advantages.advantages([rewards[j, q, i].item()], [mu], [by])
                    assert found == pytest.approx(judged.advantages[learner][j, q, i].item(), rel=2e-6, abs=2e-6)
    assert is_plain or seed % 2 or guarded > 5


def test_capability_and_ratio_are_the_trackers_bit_for_bit():
    algorithm = Hacpo(capability_window=3, ratio_min=0.5, ratio_max=2.0)
    tracker = CapabilityTracker(N, CapabilityOptions(3, 0.5, 2.0))
    means: list[list[float]] = [[], [], []]
    for seed in range(6):
        rewards, valid = world(seed)
        if seed == 2:
            valid[0] = False  # a step without a valid rollout leaves the capability as it was
        tracker.update(rewards, valid)
        for j in range(N):
            if valid[j].any():
                means[j].append(rewards[j][valid[j]].double().sum().item() / valid[j].sum().item())
        found = [advantages.capability(means[j], 3) for j in range(N)]
        assert found == tracker.capability.tolist()
        for k, j in itertools.permutations(range(N), 2):
            assert (
                advantages.capability_ratio(found[j], found[k], algorithm.capability_options)
                == tracker.ratio()[j, k].item()
            )


def test_uniform_lone_and_unheard_groups_have_no_advantage():
    group = advantages.RewardGroup({0: [1.0, 1.0], 1: [1.0]})
    assert advantages.baseline(group, (0, 1), 0, {0: 1.0, 1: 9.0}) == 1.0
    assert advantages.baseline(advantages.RewardGroup({}), (0, 1), 0, {0: 1.0, 1: 1.0}) == 0.0
    assert advantages.spread([0.5]) == 0.0
    # The guard: (1 * 0 + 0 + 4 * 1 + 4) / 4 = 2 > 1, so the learner's own mean stands: .5; without own ones, the joint.
    mixed = advantages.RewardGroup({0: [0.0, 1.0], 1: [1.0, 1.0]})
    assert advantages.baseline(mixed, (0, 1), 0, {0: 1.0, 1: 4.0}) == 0.5
    assert advantages.baseline(advantages.RewardGroup({1: [1.0, 0.0]}), (0, 1), 0, {0: 1.0, 1: 4.0}) == 0.5


def test_overlong_penalty_falls_linearly_to_minus_one():
    penalty = advantages.OverlongPenalty(limit=10, cache=4)
    assert [penalty.of(length) for length in (0, 6, 7, 8, 9, 10)] == [0.0, 0.0, -0.25, -0.5, -0.75, -1.0]
    assert advantages.OverlongPenalty(limit=10, cache=0).of(10) == 0.0
    # Without its EOS an answer of 8 tokens is recorded with 7; one that was cut has all 10.
    stripped = advantages.OverlongPenalty(limit=10, cache=4, strips_eos=True)
    assert [stripped.of_contribution(length) for length in (7, 9, 10)] == [-0.5, -1.0, -1.0]


def test_baseline_below_every_possible_reward_is_guarded_in_both():
    """A strong source whose answers are all wrong and overlong: (0 + 0 + 4 * -1 + 4 * -1) / 4 = -2."""
    rewards, valid = torch.tensor([[[0.0, 0.0]], [[-1.0, -1.0]]]), torch.ones(2, 1, 2, dtype=torch.bool)
    found = hacpo.baselines(rewards, torch.tensor([[1.0, 4.0], [0.25, 1.0]]), 0, valid=valid)
    assert (found.value.item(), found.guarded.item()) == (0.0, True)
    group = advantages.RewardGroup({0: [0.0, 0.0], 1: [-1.0, -1.0]})
    assert advantages.baseline(group, (0, 1), 0, {0: 1.0, 1: 4.0}) == 0.0
