"""Golden numbers: every case whose convention is ours gives the same capabilities, advantages, loss and gradient.

Not ours: `advantage_v1_caps`, which weighs the baseline with ratios that are not clamped. Eq. (8) is clamped to
[0.1, 10] here and in both public codes, in the baseline as in the loss. Where no ratio leaves the clamp the two agree,
as they do in all its golden cases; the last test shows a group where the clamp bites and they differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.workers.losses import micro_batch
from workers.algorithms import hacpo
from workers.algorithms.base.capability import CapabilityTracker
from workers.algorithms.base.spec import CapabilityOptions

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[2] / "data" / "hacpo_cases.json").read_text()
)["cases"]
DOUBLE = torch.float64


def cases(*kinds: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{index}-{case['kind']}-n{case['n']}")
        for index, case in enumerate(CASES)
        if case["kind"] in kinds
    ]


def clamped_ratio(capabilities: list[float]) -> torch.Tensor:
    capability = torch.tensor(capabilities, dtype=DOUBLE)
    return (capability[:, None] / capability[None, :]).clamp(0.1, 10)


def test_every_golden_kind_is_known():
    assert {case["kind"] for case in CASES} == {
        "capability_v1",
        "capability_orig",
        "advantage_v1_weights",
        "advantage_orig",
        "advantage_v1_caps",
        "loss_v1",
        "loss_orig",
    }


@pytest.mark.parametrize("case", cases("capability_v1", "capability_orig"))
def test_capabilities_and_ratios_match(case):
    tracker = CapabilityTracker(case["n"], CapabilityOptions(case["inputs"]["K"]))
    expected = case["outputs"]
    for step, rewards in enumerate(case["inputs"]["rewards_by_step_agent_sample"]):
        tracker.update(torch.tensor(rewards, dtype=DOUBLE)[:, None])  # (n, 1, samples)
        if case["kind"] == "capability_orig":
            torch.testing.assert_close(
                tracker.ratio()[1, 0].item(), expected["performance_aux_over_main_by_step"][step], rtol=1e-12, atol=0
            )
            continue
        # The source computed these in float32.
        capability = torch.tensor(expected["capabilities_by_step"][step], dtype=DOUBLE)
        torch.testing.assert_close(tracker.capability, capability, rtol=1e-6, atol=0)
        ratio = torch.tensor(expected["ratio_by_step_source_target"][step], dtype=DOUBLE)
        torch.testing.assert_close(tracker.ratio(), ratio, rtol=1e-6, atol=0)


@pytest.mark.parametrize("case", cases("advantage_v1_weights", "advantage_orig", "advantage_v1_caps"))
def test_advantages_and_baselines_match(case):
    rewards = torch.tensor(case["inputs"]["rewards_prompt_source_sample"], dtype=DOUBLE).transpose(0, 1)  # (n, B, G)
    ratio = clamped_ratio(case["inputs"]["capabilities"])
    for learner in range(case["n"]):
        found, baseline, _ = hacpo.advantages(rewards, ratio, learner)
        expected = torch.tensor(case["outputs"]["advantage_learner_prompt_source_sample"][learner], dtype=DOUBLE)
        torch.testing.assert_close(found.transpose(0, 1), expected, rtol=0, atol=1e-12)
        if "baseline_learner_prompt" in case["outputs"]:
            expected = torch.tensor(case["outputs"]["baseline_learner_prompt"][learner], dtype=DOUBLE)
            torch.testing.assert_close(baseline, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", cases("loss_v1", "loss_orig"))
def test_loss_and_gradient_match(case):
    given, expected = case["inputs"], case["outputs"]
    logps = torch.tensor(given["log_prob"], dtype=DOUBLE, requires_grad=True)
    rule = hacpo.Hacpo(
        epsilon=given["eps_low"],
        epsilon_high=given["eps_high"],
        delta=given["delta"],
        delta_step=given["delta_step"],
        alpha=given["alpha"],
    )
    batch = micro_batch(
        logps,
        mask=torch.tensor(given["mask"]) > 0,
        old_mean_logp=torch.tensor(given["source_mean_log_prob"], dtype=DOUBLE),
        advantages=torch.tensor(given["advantages"], dtype=DOUBLE),
        is_self=torch.tensor(given["source_index"]) == given["learner_index"],
        omega=torch.tensor(given["capability_ratio_source_over_target"], dtype=DOUBLE),
    )
    loss, stats = rule.loss(batch, given["minibatch_update_index"], len(logps))
    loss.backward()
    torch.testing.assert_close(loss.item(), expected["loss"], rtol=0, atol=1e-12)
    torch.testing.assert_close(logps.grad, torch.tensor(expected["grad"], dtype=DOUBLE), rtol=0, atol=1e-12)
    if "sequence_ratio" in expected:
        ratio = torch.tensor(expected["sequence_ratio"], dtype=DOUBLE)
        torch.testing.assert_close(stats["sequence_ratio"], ratio, rtol=1e-12, atol=0)


def test_unclamped_baseline_weights_differ_where_the_clamp_bites():
    # P = (.9, .01): P[0]/P[1] = 90, clamped to 10. One prompt, agent 0 earns (0, 0), agent 1 (0, 1), r_max = 10.
    # Learner 0, Eq. (7): weight of agent 1's rewards omega(0, 1) = 10, so mu = 10 * 1 / 4 = 2.5.
    # With the unclamped 90 it is 90 / 4 = 22.5, above r_max: the guard would give agent 0's own mean, 0.
    rewards = torch.tensor([[[0.0, 0.0]], [[0.0, 1.0]]], dtype=DOUBLE)
    _, ours, _ = hacpo.advantages(rewards, clamped_ratio([0.9, 0.01]), 0, reward_max=10.0)
    capability = torch.tensor([0.9, 0.01], dtype=DOUBLE)
    _, unclamped, _ = hacpo.advantages(rewards, capability[:, None] / capability[None, :], 0, reward_max=10.0)
    assert ours.tolist() == pytest.approx([2.5], abs=1e-12)
    assert unclamped.tolist() == pytest.approx([0.0], abs=1e-12)
