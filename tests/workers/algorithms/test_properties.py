"""What holds for every input: order, padding and splits are no matter, clipped rows are silent, all stays finite."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.support.workers.losses import DOUBLE, micro_batch
from workers.algorithms import grpo, gspo, hacpo, naive
from workers.algorithms.base import tensors
from workers.algorithms.base.capability import CapabilityTracker
from workers.algorithms.base.spec import AlgorithmSpec, CapabilityOptions

EPSILON, EPSILON_HIGH = 0.1, 0.2
MODES = ("zero", "keep", "sided")


RULES = {"hacpo": hacpo.Hacpo, "gspo": gspo.Gspo, "grpo": grpo.Grpo, "naive": naive.NaiveSource}


def rule_of(kind: str, **changes: Any) -> AlgorithmSpec:
    """One with wide bands; settings that it lacks are left out."""
    own = {"epsilon": EPSILON, "epsilon_high": EPSILON_HIGH, "delta": 0.3, "delta_step": 0.05, "cross_weight": 0.7}
    cls = RULES[kind]
    return cls(**{name: value for name, value in {**own, **changes}.items() if name in cls.model_fields})


class Rows:
    """A batch of random rows in double precision: ratios on both sides of every band, some rows without advantage."""

    def __init__(self, seed: int, rows: int = 8, width: int = 5, spread: float = 0.5) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=DOUBLE)

        self.mask = torch.arange(width)[None, :] < torch.randint(1, width + 1, (rows, 1), generator=random)
        self.logps = (-normal(rows, width).abs()).where(self.mask, 0.0)
        self.old_logps = (self.logps + spread * normal(rows, width)).where(self.mask, 0.0)
        self.mean = self.old_logps.sum(1) / self.mask.sum(1)
        self.advantages = normal(rows) * (torch.rand(rows, generator=random) > 0.2)
        self.is_self = torch.rand(rows, generator=random) > 0.5
        self.omega = normal(rows).exp()
        self.reference = (self.logps + 0.3 * normal(rows, width)).where(self.mask, 0.0)

    def evaluate(
        self, kind: str, index: Tensor | None = None, pad: int = 0, m: int = 1, **changes: Any
    ) -> tuple[float, Tensor, dict[str, Tensor]]:
        """Loss, gradient (b, T + pad) and stats of the rows `index`; the denominator is always 16."""
        rows = torch.arange(len(self.logps)) if index is None else index

        def padded(values: Tensor) -> Tensor:
            junk = torch.full((len(rows), pad), 7.0).to(values.dtype)  # whatever stands there counts nowhere
            return torch.cat([values[rows], junk if values.dtype != torch.bool else junk.bool() & False], dim=1)

        logps = padded(self.logps).requires_grad_()
        rule = rule_of(kind, **changes)
        batch = micro_batch(
            logps,
            mask=padded(self.mask),
            old_mean_logp=self.mean[rows],
            advantages=self.advantages[rows],
            is_self=self.is_self[rows],
            omega=self.omega[rows],
            ref_logps=padded(self.reference) if rule.beta else None,
            old_logps=padded(self.old_logps),
        )
        loss, stats = rule.loss(batch, m, 16)
        loss.backward()
        assert logps.grad is not None
        return loss.item(), logps.grad, stats


SEEDS = st.integers(0, 2**31 - 1)
KINDS = st.sampled_from(["hacpo", "gspo", "grpo", "naive"])


@given(seed=SEEDS, kind=KINDS, pad=st.integers(0, 6))
def test_order_of_rows_and_padding_are_no_matter(seed, kind, pad):
    rows = Rows(seed)
    loss, gradient, stats = rows.evaluate(kind, beta=0.1)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed ^ 1))
    other, moved, moved_stats = rows.evaluate(kind, order, pad, beta=0.1)
    assert other == pytest.approx(loss, abs=1e-12)
    torch.testing.assert_close(moved[:, :5], gradient[order], rtol=0, atol=1e-12)
    assert not moved[:, 5:].any()
    for name, values in stats.items():
        torch.testing.assert_close(moved_stats[name], values[order], rtol=0, atol=1e-12)


@given(seed=SEEDS, mode=st.sampled_from(MODES), m=st.integers(0, 8))
def test_cross_gradient_is_zero_exactly_outside_the_mask_of_its_mode(seed, mode, m):
    rows = Rows(seed)
    rows.is_self[:] = False
    _, gradient, stats = rows.evaluate("hacpo", m=m, cross_clip_gradient=mode)
    low = min(1.0, 0.7 + 0.05 * m)
    for row in range(8):
        ratio, advantage = stats["sequence_ratio"][row].item(), rows.advantages[row].item()
        flows = {
            "zero": low <= ratio <= 1,
            "keep": True,
            "sided": low <= ratio <= 1 or (ratio < low and advantage > 0) or (ratio > 1 and advantage < 0),
        }[mode] and advantage != 0
        assert bool(gradient[row].any()) == flows == bool(stats["gradient_flows"][row])
        clipped = min(max(ratio, low), 1.0)
        weight = clipped**2 * rows.omega[row].item() * advantage * 0.7 if flows else 0.0
        assert stats["weight"][row].item() == pytest.approx(weight, rel=1e-9, abs=1e-15)
        # d loss / d token = -weight / (16 L): the weight is what the pictures show.
        assert gradient[row].sum().item() == pytest.approx(-weight / 16, rel=1e-9, abs=1e-15)


@given(seed=SEEDS, kind=st.sampled_from(["hacpo", "gspo", "naive"]))
def test_self_gradient_is_zero_exactly_where_the_clipped_branch_is_the_minimum(seed, kind):
    rows = Rows(seed)
    rows.is_self[:] = True
    _, gradient, stats = rows.evaluate(kind)
    for row in range(8):
        ratio, advantage = stats["sequence_ratio"][row].item(), rows.advantages[row].item()
        clipped = min(max(ratio, 1 - EPSILON), 1 + EPSILON_HIGH)
        flows = advantage != 0 and ratio * advantage <= clipped * advantage
        assert bool(gradient[row].any()) == flows == bool(stats["gradient_flows"][row])
        assert gradient[row].sum().item() == pytest.approx(-ratio * advantage / 16 if flows else 0.0, abs=1e-12)


@given(seed=SEEDS)
def test_token_gradient_is_zero_exactly_where_that_tokens_clipped_branch_is_the_minimum(seed):
    rows = Rows(seed)
    _, gradient, stats = rows.evaluate("grpo")
    ratio = (rows.logps - rows.old_logps).exp()
    given_ = rows.advantages[:, None]
    clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON_HIGH)
    flows = (ratio * given_ <= clipped * given_) & rows.mask & (given_ != 0)
    assert torch.equal(gradient != 0, flows)
    outside = rows.mask & (given_ != 0) & ~flows
    shares = (stats["clipped_low"] + stats["clipped_high"])[rows.advantages != 0]
    torch.testing.assert_close(shares, (outside.sum(1) / rows.mask.sum(1)).double()[rows.advantages != 0])


@given(seed=SEEDS, low=st.floats(0, 5), more=st.floats(0, 5))
def test_higher_alpha_never_weighs_a_shared_row_more(seed, low, more):
    rows = Rows(seed)
    rows.is_self[:] = False
    weights = [
        rows.evaluate("hacpo", alpha=alpha, cross_clip_gradient="keep")[2]["weight"].abs()
        for alpha in (low, low + more)
    ]
    assert (weights[1] <= weights[0] * (1 + 1e-12)).all()


@given(seed=SEEDS, mode=st.sampled_from(MODES), m=st.integers(0, 8), dropped=st.integers(0, 7))
def test_used_clipped_without_advantage_and_dropped_are_all_rows(seed, mode, m, dropped):
    rows = Rows(seed)
    kept = torch.arange(8 - dropped)
    _, _, stats = rows.evaluate("hacpo", kept, m=m, cross_clip_gradient=mode)
    advantages = rows.advantages[kept]
    used = stats["gradient_flows"]
    clipped = ~used & (advantages != 0)
    assert not (used & (advantages == 0)).any()
    assert (stats["clip_side"][clipped] != 0).all()  # nothing else keeps a gradient back
    assert int(used.sum() + clipped.sum() + (advantages == 0).sum()) + dropped == 8


FINITE = st.floats(-1e30, 1e30, allow_nan=False, width=32)


@given(
    data=st.data(),
    kind=KINDS,
    mode=st.sampled_from(MODES),
    m=st.integers(0, 100),
    clip_cross=st.booleans(),
    alpha=st.sampled_from([0.0, 1.0, 2.0, 10.0]),
)
@settings(max_examples=150)
def test_finite_for_any_finite_input_and_any_mask(data, kind, mode, m, clip_cross, alpha):
    rows = Rows(0, rows=3, width=3)

    def some(count: int, values: Any = FINITE) -> Tensor:
        return torch.tensor(data.draw(st.lists(values, min_size=count, max_size=count)), dtype=torch.float32)

    # Log-probabilities are not positive; anything as far from zero as a broken model makes them.
    logp = st.floats(-1e4, 0, width=32)
    rows.logps, rows.old_logps = some(9, logp).view(3, 3), some(9, logp).view(3, 3)
    rows.mean = some(3, logp)
    rows.advantages, rows.omega = some(3, st.floats(-1e3, 1e3, width=32)), some(3, st.floats(0.125, 10, width=32))
    rows.mask = some(9, st.booleans()).view(3, 3).bool()  # also rows without any token
    # Without the clip e^10 to the power 11 is beyond float32: that is what the guard of the updates is for.
    alpha = alpha if clip_cross else min(alpha, 2.0)
    loss, gradient, stats = rows.evaluate(kind, m=m, cross_clip_gradient=mode, clip_cross=clip_cross, alpha=alpha)
    assert math.isfinite(loss)
    assert gradient.isfinite().all()
    assert not gradient[~rows.mask].any()
    for name, values in stats.items():
        assert values.isfinite().all(), name


# Groups


def group(seed: int, n: int = 3, prompts: int = 4, samples: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, a valid mask with holes, and ratios of random capabilities. Odd seeds: partial credit in tenths."""
    random = torch.Generator().manual_seed(seed)
    levels = 11 if seed % 2 else 2
    rewards = torch.randint(0, levels, (n, prompts, samples), generator=random).to(DOUBLE) / (levels - 1)
    valid = torch.rand(n, prompts, samples, generator=random) > 0.2
    capability = torch.rand(n, generator=random, dtype=DOUBLE) + 1e-3
    return rewards, valid, (capability[:, None] / capability[None, :]).clamp(0.1, 10)


@given(seed=SEEDS, scale=st.sampled_from(["group", "batch", "none"]))
def test_order_of_agents_prompts_and_samples_is_no_matter(seed, scale):
    rewards, valid, ratio = group(seed)
    random = torch.Generator().manual_seed(seed ^ 1)
    agents, prompts, samples = (torch.randperm(count, generator=random) for count in rewards.shape)

    def moved(values: Tensor) -> Tensor:
        return values[agents][:, prompts][:, :, samples]

    for place, learner in enumerate(agents.tolist()):
        expected, baseline, _ = hacpo.advantages(rewards, ratio, learner, valid=valid, scale_rewards=scale)
        found, other, _ = hacpo.advantages(
            moved(rewards), ratio[agents][:, agents], place, valid=moved(valid), scale_rewards=scale
        )
        torch.testing.assert_close(found, moved(expected), rtol=0, atol=1e-9)
        torch.testing.assert_close(other, baseline[prompts], rtol=0, atol=1e-12)
    expected, _ = tensors.joint_advantages(rewards, valid=valid, scale_rewards=scale)
    found, _ = tensors.joint_advantages(moved(rewards), valid=moved(valid), scale_rewards=scale)
    torch.testing.assert_close(found, moved(expected), rtol=0, atol=1e-9)


@given(seed=SEEDS)
def test_equal_agents_are_judged_by_the_joint_mean(seed):
    rewards, valid, _ = group(seed)
    plain, baseline = tensors.joint_advantages(rewards, valid=valid)
    for learner in range(3):
        found, other, _ = hacpo.advantages(rewards, torch.ones(3, 3, dtype=DOUBLE), learner, valid=valid)
        torch.testing.assert_close(found, plain, rtol=0, atol=1e-12)
        torch.testing.assert_close(other, baseline, rtol=0, atol=1e-12)


@given(seed=SEEDS, window=st.integers(1, 4), warmup=st.integers(0, 3), steps=st.integers(1, 6), cut=st.integers(0, 6))
def test_tracker_resumes_from_its_state_at_any_step(seed, window, warmup, steps, cut):
    options = CapabilityOptions(window, warmup_steps=warmup)
    whole = CapabilityTracker(3, options)
    resumed = CapabilityTracker(3, options)
    for step in range(steps):
        if step == cut:
            state = json.loads(json.dumps(resumed.state_dict()))
            resumed = CapabilityTracker(3, options)
            resumed.load_state_dict(state)
        rewards, valid, _ = group(seed + step)
        for tracker in (whole, resumed):
            tracker.update(rewards, valid)
        assert torch.equal(whole.ratio(), resumed.ratio())
        assert torch.equal(whole.clamped(), resumed.clamped())
        low, high = whole.ratio().min().item(), whole.ratio().max().item()
        assert 0.1 <= low <= high <= 10


REWARDS = st.lists(st.floats(0, 1, width=32), min_size=12, max_size=12)


@given(values=REWARDS, same=st.floats(0, 1, width=32), scale=st.sampled_from(["group", "batch", "none"]))
def test_graded_rewards_keep_signs_and_uniform_groups_teach_nothing(values, same, scale):
    """(2, 3, 2) rewards in [0, 1]; the last prompt's are all the same."""
    rewards = torch.tensor(values).reshape(2, 3, 2)
    rewards[:, 2] = same
    ratio = torch.tensor([[1.0, 2.5], [0.4, 1.0]])
    for learner in range(2):
        advantages, baseline, _ = hacpo.advantages(rewards, ratio, learner, scale_rewards=scale)
        assert advantages.isfinite().all()
        assert (advantages[:, 2] == 0).all()
        assert baseline[2] == rewards[0, 2, 0]
        deviation = rewards - baseline[:, None]
        assert (advantages.sign() == deviation.sign()).all()
        assert (baseline >= 0).all()
        assert (baseline <= 1).all()
        # Of two rollouts of a prompt, the one with the higher reward has the higher advantage.
        order = rewards.transpose(1, 0).reshape(3, 4).argsort(dim=1)
        assert (advantages.transpose(1, 0).reshape(3, 4).gather(1, order).diff(dim=1) >= 0).all()


@given(values=REWARDS)
def test_capability_is_the_mean_reward(values):
    """Eq. (9) with partial credit: no threshold makes it a share of correct answers."""
    rewards = torch.tensor(values).reshape(2, 3, 2)
    tracker = CapabilityTracker(2)
    tracker.update(rewards)
    means = rewards.double().mean(dim=(1, 2)).clamp(min=1e-8)
    torch.testing.assert_close(tracker.capability, means, rtol=1e-12, atol=0)
