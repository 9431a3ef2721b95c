"""Metrics of a step, by hand: two agents, two prompts, two rollouts each."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from workers.agents.messages import GeneratedRollouts, LearnerRow, Response, RowResult, UpdateReport
from workers.algorithms.base.capability import CapabilityTracker
from workers.algorithms.base.spec import Objective
from workers.algorithms.hacpo import Hacpo
from workers.questions.dataset import Question
from workers.trainer.scoring import Scores
from workers.trainer.step import StepPlan
from workers.trainer.step_events import StepRecord, agent_metrics, contribution_events, pair_metrics

REWARDS = torch.tensor([[[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 1.0]]])  # (n, B, G)


def response(num_tokens: int, finish_reason="stop") -> Response:
    return Response("1", "1", finish_reason, num_tokens, num_tokens, -0.5)


def record() -> StepRecord:
    tracker = CapabilityTracker(2)
    tracker.update(REWARDS)  # P = (1/4, 3/4)
    generated = [
        GeneratedRollouts([[response(2), response(4)], [response(4), response(6, "length")]], (8.0, 16.0)),
        GeneratedRollouts([[response(5), response(5)], [response(5), response(5)]], (1.0, 20.0)),
    ]
    # Learner 0: its own four rollouts, then the source's. Columns: advantage, s, side, flows, weight.
    own = [
        (0.0, 0.99, -1, False, 0.0),  # evaluated for the KL penalty alone: in no clip ratio
        (-1.0, 0.99, -1, False, 0.0),
        (1.0, 1.01, 1, False, 0.0),
        (-1.0, 1.0, 0, True, -1.0),
    ]
    cross = [
        (1.0, 0.5, -1, False, 0.0),
        (-0.5, 0.9, 0, True, -1.215),
        (2.0, 0.8, 0, True, 3.84),
        (2.0, None, 0, False, 0.0),
    ]
    plans, results = [], []
    for source, block in ((0, own), (1, cross)):
        rows, outcomes = [], []
        for index, (advantage, ratio, side, flows, weight) in enumerate(block):
            prompt, sample = divmod(index, 2)
            shared = generated[1].responses[prompt][sample] if source else None
            rows.append(LearnerRow(prompt, source, sample, not source, advantage, 3.0 if source else 1.0, shared))
            cut = ratio is not None and not flows
            low, high = float(cut and side < 0), float(cut and side > 0)
            outcomes.append(RowResult(4, ratio, ratio, side, flows, weight, clipped_low=low, clipped_high=high))
        plans.append(rows)
        results.append(outcomes)
    results[1][3].drop_reason = "overflow"
    report = UpdateReport(
        results=results, losses=[0.1, 0.3], grad_norms=[1.0, 3.0], kl=(0.5, 4.0), learning_rate=0.01,
        sampling_logp_differences=[1e-6, 3e-6],
    )  # fmt: skip
    report.alignment = {1: 0.25}
    advantages = torch.zeros(2, 2, 2)
    advantages[0, 0, 0] = 4.0
    return StepRecord(
        step=7,
        names=["A", "B"],
        algorithm=Hacpo(),
        questions=[Question("q0", "1", "1"), Question("q1", "2", "2")],
        generated=generated,
        scores=Scores(REWARDS, torch.ones(2, 2, 2, dtype=torch.bool), [0, 2]),
        tracker=tracker,
        plan=StepPlan(
            trusted_sources=[[True, True]] * 2,
            objective=Objective(
                advantages=[advantages, advantages],
                baselines=[torch.tensor([0.25, 0.75])] * 2,
                guarded=[torch.tensor([True, False])] * 2,
                in_baseline=[torch.ones(2, 2, 2, dtype=torch.bool)] * 2,
            ),
            mini_batches=[plans, []],
            quarantined=[[], []],
            penalties=torch.zeros(2, 2, 2),
        ),
        reports=[report, UpdateReport()],
    )


def test_agent_metrics_by_hand():
    found = agent_metrics(record(), 0)
    assert found.ratios == {
        "reward/mean": (1.0, 4.0),
        "frac_reward_zero_std": (1.0, 2.0),  # prompt 0: both wrong
        "frac_reward_zero_std_joint": (0.0, 2.0),
        "guard_frac": (1.0, 2.0),
        "completions/clipped_ratio": (1.0, 4.0),
        "clip_ratio/low_mean": (1.0, 3.0),
        "clip_ratio/high_mean": (1.0, 3.0),
    }
    values = found.values
    assert values["capability"] == 0.25
    assert values["advantage/mean"] == 0.5  # 4 over eight rollouts of both agents
    assert values["advantage/std"] == pytest.approx(math.sqrt((3.5**2 + 7 * 0.5**2) / 7))
    assert values["baseline/mean"] == 0.5
    assert values["entropy"] == 0.5
    assert values["kl"] == 0.125
    assert (values["loss"], values["grad_norm"], values["learning_rate"]) == (0.2, 2.0, 0.01)
    assert values["completions/mean_length"] == 4.0
    assert values["sampling_logp_difference/mean"] == pytest.approx(2e-6)
    assert values["sampling_logp_difference/max"] == 3e-6
    assert values["verifier/timeout"] == 0.0


def test_mean_baseline_is_of_prompts_with_a_valid_rollout():
    found = record()
    objective = found.plan.objective
    in_baseline = objective.in_baseline[0].clone()
    in_baseline[:, 0] = False  # prompt 0 of baseline .25 has none
    changed = replace(objective, in_baseline=[in_baseline, torch.zeros_like(in_baseline)])
    found = replace(found, plan=replace(found.plan, objective=changed))
    assert agent_metrics(found, 0).values["baseline/mean"] == 0.75
    assert agent_metrics(found, 1).values["baseline/mean"] is None


def test_alpha_is_recorded_where_it_acts():
    for algorithm, alphas in ((Hacpo(alpha=2.0), {None, 2.0}), (Hacpo(alpha=2.0, cross_gate="signed"), {None})):
        told = list(contribution_events(replace(record(), algorithm=algorithm)))
        assert {one.alpha for one in told} == alphas
        assert {one.alpha for one in told if one.source == one.agent} == {None}


def test_partial_credit_rescues_nothing_and_hides_no_rescue():
    found = record()
    graded = Scores(REWARDS * 0.9, found.scores.valid, [0, 0])
    assert pair_metrics(replace(found, scores=graded), 0, 1).ratios["rescue_frac"] == (0.0, 2.0)
    graded = Scores(REWARDS.clamp(min=0.9), found.scores.valid, [0, 0])
    assert pair_metrics(replace(found, scores=graded), 0, 1).ratios["rescue_frac"] == (1.0, 2.0)


def test_pair_metrics_by_hand():
    found = pair_metrics(record(), 0, 1)
    assert (found.agent, found.source, found.step) == ("A", "B", 7)
    assert found.ratios == {
        "used_frac": (2.0, 4.0),
        "rescue_frac": (1.0, 2.0),  # prompt 0: A all wrong, B right once
        "clip_lower_frac": (1.0, 3.0),
        "clip_upper_frac": (0.0, 3.0),
        "clip_lower_frac/positive": (1.0, 2.0),
        "clip_upper_frac/positive": (0.0, 2.0),
        "clip_lower_frac/negative": (0.0, 1.0),
        "clip_upper_frac/negative": (0.0, 1.0),
    }
    values = found.values
    assert (values["omega"], values["omega_clamped"], values["dropped"]) == (3.0, 0.0, 1.0)  # (3/4) / (1/4)
    assert values["gradient_alignment"] == 0.25
    # s = .5, .9, .8: mean .7333, deviations -.2333, .1667, .0667, squares .08667, / 2, root .20817.
    assert values["sequence_ratio/mean"] == pytest.approx(2.2 / 3)
    assert values["sequence_ratio/std"] == pytest.approx(0.2081666, abs=1e-6)
    assert values["sequence_ratio/p50"] == pytest.approx(0.8)
    assert values["sequence_ratio/p10"] == pytest.approx(0.56)  # .5 + .2 * .3
    assert values["effective_weight"] == pytest.approx((0 + 2.43 + 1.92) / 3)
    assert values["retok_len_ratio"] == pytest.approx(4 / 5)


def test_every_metric_has_its_line_in_the_glossary():
    text = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
    first_cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    step = record()
    for event in (agent_metrics(step, 0), pair_metrics(step, 0, 1)):
        assert {*event.values, *event.ratios} <= documented
