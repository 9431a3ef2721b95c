"""The example docs/examples/success_transfer.py: one success of a peer where the learner has none, nothing else."""

from __future__ import annotations

from pathlib import Path

import torch

from workers.algorithms.base import tensors
from workers.algorithms.base.contribution import WeightedRow, factors
from workers.algorithms.registry import load_file

EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "success_transfer.py"
SuccessTransfer = load_file(EXAMPLE).SuccessTransfer

ONE = torch.ones(3, 3)
# Three agents, four prompts, two rollouts each.
REWARDS = torch.tensor(
    [
        [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
        [[0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]],
        [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]],
    ]
)
VALID = torch.ones_like(REWARDS, dtype=torch.bool)


def objective(**options):
    return SuccessTransfer().objective(REWARDS, VALID, ONE, **options)


def test_one_success_on_each_prompt_without_one_of_its_own():
    found = objective().advantages[0]
    assert torch.equal(found[0], tensors.joint_advantages(REWARDS[:1])[0][0])
    # Prompt 0: the first of two successes, agent 1's second. Prompt 1: it has its own. Prompt 2: nobody has one.
    # Prompt 3: the successes are (1, 0), (1, 1), (2, 0), and 3 % 3 = 0.
    expected = torch.zeros(2, 4, 2)
    expected[0, 0, 1] = expected[0, 3, 0] = 2.0
    assert torch.equal(found[1:], expected)


def test_partial_credit_is_no_success():
    graded = REWARDS.clone()
    graded[REWARDS == 0] = 0.7
    found = SuccessTransfer().objective(graded, VALID, ONE).advantages[0]
    assert torch.equal(found[1:] > 0, objective().advantages[0][1:] > 0)


def test_untrusted_source_transfers_nothing_that_counts():
    trusted = torch.tensor([[True, False, True], [True, True, True], [True, True, True]])
    found = objective(trusted=trusted).advantages[0]
    # Of agent 2 alone on prompts 0 and 3; agent 1's are those that it would have, and its rows are not trained on.
    assert found[2].nonzero().tolist() == [[0, 0], [3, 0]]


def test_unscored_group_of_the_learner_is_not_a_failure():
    valid = VALID.clone()
    valid[0, 0] = False
    assert not SuccessTransfer().objective(REWARDS, valid, ONE).advantages[0][1:, 0].any()


def test_weight_is_lambda_times_group_size_whatever_the_ratio():
    rule = SuccessTransfer(cross_weight=0.5).filled(2, 1)
    assert rule.weigh(False, 0, [0.01, 1.0, 3.0], [2.0, 2.0, 2.0]).weights == [1.0, 1.0, 1.0]


def test_weight_is_explained_without_a_ratio():
    rule = SuccessTransfer(cross_weight=0.5)
    row = WeightedRow(False, 0, 0.01, 4.0, 1.0, 2.0)
    found = factors(rule.explain(row))
    assert [(step.symbol, step.value) for step in found] == [("A", 4.0), ("cross_weight", 0.5), ("1[flows]", 1.0)]
    assert found[-1].product == 2.0
    assert rule.equation(row) == "G · cross_weight = 4 · 0.5"
