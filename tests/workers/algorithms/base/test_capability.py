"""Omega by prompt and by subject, worked out by hand; its clamps, its floor and its state."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.algorithms import hacpo
from workers.algorithms.base.capability import CapabilityTracker
from workers.algorithms.base.contribution import WeightedRow, factors
from workers.algorithms.hacpo import Hacpo
from workers.algorithms.registry import algorithms, settings_schema

DOUBLE = torch.float64
# Two agents, two prompts, four rollouts: P = 3/8 and 5/8.
REWARDS = torch.tensor([[[1.0, 1, 1, 0], [0, 0, 0, 0]], [[1.0, 0, 0, 0], [1, 1, 1, 1]]])


def by_prompt(rewards: torch.Tensor, valid: torch.Tensor | None = None, **options) -> CapabilityTracker:
    tracker = CapabilityTracker(len(rewards), scope="prompt", **options)
    tracker.update(rewards, valid)
    return tracker


def test_ratio_by_prompt_by_hand():
    # c = 4. A: (3 + 1.5) / 8 = 9/16 and (0 + 1.5) / 8 = 3/16. B: (1 + 2.5) / 8 = 7/16 and (4 + 2.5) / 8 = 13/16.
    tracker = by_prompt(REWARDS)
    expected = torch.tensor([[[1, 1], [9 / 7, 3 / 13]], [[7 / 9, 13 / 3], [1, 1]]], dtype=DOUBLE)
    torch.testing.assert_close(tracker.step_ratio(), expected, rtol=1e-14, atol=0)
    assert tracker.ratio().tolist() == [[1.0, 0.6], [1 / 0.6, 1.0]]  # Eq. (8), as without a scope


def test_baseline_and_gradient_factor_take_each_prompts_ratio():
    ratio, valid = by_prompt(REWARDS).step_ratio(), torch.ones(2, 2, 4, dtype=torch.bool)
    rule = Hacpo(omega_scope="prompt")
    objective = rule.objective(REWARDS, valid, ratio)
    # Eq. (7), A: (3 + 9/7 * 1) / 8 = 15/28 and (0 + 3/13 * 4) / 8 = 3/26. B: (7/9 * 3 + 1) / 8 = 5/12 and 4 / 8.
    torch.testing.assert_close(objective.baselines[0], torch.tensor([15 / 28, 3 / 26]))
    torch.testing.assert_close(objective.baselines[1], torch.tensor([5 / 12, 1 / 2]))
    # Eq. (6): the rewards of each prompt are four of 1 and four of 0, whose std is sqrt(8 / 7 / 4).
    assert objective.advantages[0][1, 1, 0].item() == pytest.approx((1 - 3 / 26) / (2 / 7) ** 0.5, rel=1e-5)
    assert rule.omega(ratio, 0, 1).tolist() == pytest.approx([7 / 9, 13 / 3])  # omega(source, learner)
    assert rule.omega(ratio, 0, 0).tolist() == [1.0, 1.0]
    assert Hacpo(omega_scope="prompt", modulate_gradient=False).omega(ratio, 0, 1).tolist() == [1.0, 1.0]


def test_guard_holds_by_prompt():
    # On prompt 1 omega(A, B) = 10: (10 * 2 + 1) / 4 > 1, so the mean of A's own rewards stands.
    rewards = torch.tensor([[[1.0, 0], [1, 0]], [[1.0, 0], [1, 1]]])
    ratio = torch.ones(2, 2, 2, dtype=DOUBLE)
    ratio[0, 1, 1] = 10
    found = hacpo.baselines(rewards, ratio, 0)
    assert (found.value.tolist(), found.guarded.tolist()) == ([0.5, 0.5], [False, True])


def test_clamp_floor_and_warm_up_by_prompt():
    assert by_prompt(REWARDS, ratio_min=0.5, ratio_max=2.0).step_ratio()[0, 1].tolist() == [9 / 7, 0.5]
    assert by_prompt(REWARDS, ratio_min=0.5, ratio_max=2.0).step_ratio()[1, 0, 1].item() == 2.0
    assert by_prompt(torch.zeros(2, 2, 4)).step_ratio().tolist() == torch.ones(2, 2, 2).tolist()  # both at the floor
    nobody_else = REWARDS * torch.tensor([1.0, 0.0])[:, None, None]
    assert by_prompt(nobody_else).step_ratio()[0, 1].tolist() == [10.0, 10.0]
    tracker = by_prompt(REWARDS, warmup_steps=1)
    assert torch.equal(tracker.step_ratio(), torch.ones(2, 2, 2, dtype=DOUBLE))
    tracker.update(REWARDS)
    assert tracker.step_ratio()[1, 0].tolist() == pytest.approx([7 / 9, 13 / 3])


def test_rollouts_without_a_reward_count_nowhere():
    valid = torch.ones(2, 2, 4, dtype=torch.bool)
    valid[0, 0, 3] = False  # A's only wrong rollout of prompt 0: P = 3/7, (3 + 4 * 3/7) / 7 = 33/49
    valid[1, 0] = False  # B has none there: its capability of 1
    assert by_prompt(REWARDS, valid).step_ratio()[0, 1, 0].item() == pytest.approx(33 / 49, rel=1e-14)


SUBJECTS = (["x", "y"], ["y", ""])
STEPS = (
    torch.tensor([[[1.0, 0], [0, 0]], [[0.0, 0], [1, 1]]]),
    torch.tensor([[[1.0, 0], [1, 1]], [[0.0, 9], [1, 0]]]),
)
VALID = torch.tensor([[[True, True], [True, True]], [[True, False], [True, True]]])  # of the second step


def by_subject(window: int, c: float = 1.0) -> CapabilityTracker:
    return CapabilityTracker(2, window, scope="subject", shrinkage=c)


def test_ratio_by_subject_by_hand():
    tracker = by_subject(2)
    tracker.update(STEPS[0], None, SUBJECTS[0])
    tracker.update(STEPS[1], VALID, SUBJECTS[1])
    # P: A (1/4 + 3/4) / 2 = 1/2, B (1/2 + 1/3) / 2 = 5/12. On y, c = 1: A (0 + 1 + 1/2) / 5 = 3/10,
    # B (2 + 0 + 5/12) / 4 = 29/48. The second question has no subject: 1/2 over 5/12, as in the run.
    assert tracker.step_ratio()[0, 1].tolist() == pytest.approx([3 / 10 / (29 / 48), 6 / 5], rel=1e-14)
    assert tracker.step_ratio()[0, 1, 1] == tracker.ratio()[0, 1]


def test_subjects_have_the_window_of_the_capability():
    tracker = by_subject(1)
    tracker.update(STEPS[0], None, SUBJECTS[0])
    tracker.update(STEPS[1], VALID, SUBJECTS[1])
    # Of the second step alone. P: 3/4 and 1/3. On y: A (1 + 3/4) / 3 = 7/12, B (0 + 1/3) / 2 = 1/6.
    assert tracker.step_ratio()[0, 1, 0].item() == pytest.approx(7 / 2, rel=1e-14)
    # A step without a valid rollout of B moves B's window of neither.
    silent = VALID.clone()
    silent[1] = False
    tracker.update(STEPS[1], silent, SUBJECTS[1])
    assert tracker.step_ratio()[0, 1, 0].item() == pytest.approx(7 / 2, rel=1e-14)


def test_forgotten_agent_has_no_subjects():
    tracker = by_subject(5)
    tracker.update(STEPS[0], None, SUBJECTS[0])
    tracker.forget(1)
    tracker.update(STEPS[1], VALID, SUBJECTS[1])
    # P[B] = 1/3; on y: (0 + 1/3) / 2 = 1/6. A: (0 + 1 + 1/2) / 5 = 3/10.
    assert tracker.step_ratio()[0, 1, 0].item() == pytest.approx(9 / 5, rel=1e-14)


rewards_of_steps = st.lists(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=12), min_size=1, max_size=5
)


@given(rewards_of_steps, st.integers(0, 4), st.sampled_from(["prompt", "subject"]))
def test_resumed_tracker_has_the_same_ratios(steps, cut, scope):
    whole, resumed = (CapabilityTracker(3, 2, scope=scope) for _ in range(2))
    for number, values in enumerate(steps):
        if number == cut:
            state = json.loads(json.dumps(resumed.state_dict()))
            resumed = CapabilityTracker(3, 2, scope=scope)
            resumed.load_state_dict(state)
        for tracker in (whole, resumed):
            tracker.update(torch.tensor(values).view(3, 2, 2), None, ["x", "xy"[number % 2]])
        assert torch.equal(whole.step_ratio(), resumed.step_ratio())
    assert ("subjects" in whole.state_dict()) == (scope == "subject")


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=12))
def test_one_ratio_for_all_prompts_gives_the_numbers_of_the_run(values):
    rewards = torch.tensor(values).view(3, 2, 2)
    valid = torch.ones_like(rewards, dtype=torch.bool)
    tracker = CapabilityTracker(3)
    tracker.update(rewards)
    ratio = tracker.ratio()
    assert torch.equal(tracker.step_ratio(), ratio)
    one, each = (Hacpo().objective(rewards, valid, r) for r in (ratio, ratio[:, :, None].expand(3, 3, 2)))
    for learner in range(3):
        assert torch.equal(one.advantages[learner], each.advantages[learner])
        assert torch.equal(one.baselines[learner], each.baselines[learner])


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8), st.sampled_from(["prompt", "subject"]))
def test_one_agent_and_agents_that_share_nothing_are_judged_as_by_gspo(values, scope):
    gspo = algorithms()["gspo"]()
    for n, rule in ((1, Hacpo(omega_scope=scope)), (2, Hacpo(omega_scope=scope, sharing=False))):
        rewards = torch.tensor(values).view(2, 2, 2)[:n]
        valid = torch.ones_like(rewards, dtype=torch.bool)
        tracker = CapabilityTracker.of(n, rule.capability_options)
        tracker.update(rewards, valid, ["x", ""])
        assert (tracker.scope == scope) == (n == 1)  # without sharing omega acts nowhere
        ours, theirs = (one.objective(rewards, valid, tracker.step_ratio()) for one in (rule, gspo))
        for learner in range(n):
            assert torch.equal(ours.baselines[learner], theirs.baselines[learner])
            assert torch.equal(ours.advantages[learner], theirs.advantages[learner])


# The settings and their explanation


def test_settings_are_those_of_hacpo_and_count_where_they_act():
    assert [settings_schema()[name]["algorithms"] for name in ("omega_scope", "omega_shrinkage")] == [["hacpo"]] * 2
    assert [Hacpo(omega_scope=scope).uses("omega_shrinkage") for scope in ("run", "prompt", "subject")] == [
        False,
        True,
        True,
    ]
    without = Hacpo(omega_scope="prompt", advantage="plain", modulate_gradient=False)
    assert not without.uses("omega_scope")
    assert not without.uses("omega_shrinkage")
    assert without.capability_options.scope == "run"


def test_what_if_turns_what_it_can_compute():
    of_omega = {"capability_window", "ratio_min", "ratio_max", "omega_shrinkage"}
    names = {scope: set(Hacpo(omega_scope=scope).hypothetical_settings()) for scope in ("run", "prompt", "subject")}
    assert names["prompt"] >= of_omega
    assert names["run"] & of_omega == of_omega - {"omega_shrinkage"}
    assert not names["subject"] & of_omega
    assert names["subject"] >= {"alpha", "delta"}


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        ("run", "of the source to the learner; Eq. (8)"),
        ("prompt", "of the source to the learner on this prompt"),
        ("subject", "of the source to the learner on this prompt's subject, if it has one"),
    ],
)
def test_factor_of_a_weight_names_what_omega_compares(scope, reason):
    row = WeightedRow(False, 1, 0.9, 0.5, 1.25, 0.5)
    for gate in ("hacpo", "signed"):
        rule = Hacpo(omega_scope=scope, cross_gate=gate).filled(2, 1)
        (omega,) = [factor for factor in factors(rule.explain(row)) if factor.symbol == "ω"]
        assert (omega.value, omega.why) == (1.25, reason)
