"""Runs of one seed are paired: whatever the algorithm, they are asked the same questions in the same order."""

from __future__ import annotations

import pytest

from workers.algorithms.registry import algorithms
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.trainer.step import batch_of_step

ALGORITHMS = ("hacpo", "gspo", "gspox2", "grpo", "naive_source", "naive_learner")
QUESTIONS = [Question(id=f"q{number}", question=str(number), answer="1") for number in range(40)]


def order(**changes: object) -> list[list[str]]:
    """The questions of nine steps, more than two epochs of 40 by 8."""
    sections = {"agents": [{"name": "a", "model": "m"}, {"name": "b", "model": "m"}], "data": {"train_path": "q"}}
    training = {"steps": 9, "train_batch_size": 8, "mini_batch_size": 8}
    spec = RunSpec.model_validate({**sections, "training": training, **changes})
    return [[question.id for question in batch_of_step(spec, step, QUESTIONS)] for step in range(9)]


@pytest.mark.parametrize("seed", [0, 7])
def test_questions_and_their_order_follow_from_the_seed_alone(seed):
    orders = [order(seed=seed, algorithm={"name": name}) for name in ALGORITHMS]
    orders.append(order(seed=seed, algorithm={"name": "hacpo", "delta": 0.4, "alpha": 3, "sharing": False}))
    assert all(one == orders[0] for one in orders)
    assert orders[0] != order(seed=seed + 1)


@pytest.mark.parametrize(
    ("rule", "unused"),
    [
        ({}, set()),
        ({"name": "gspo"}, {"alpha", "delta", "delta_step", "capability_window", "sharing", "overflow", "audit_share"}),
        ({"name": "naive_source"}, {"alpha", "delta", "delta_step", "capability_window", "cross_weight"}),
        ({"sharing": False}, {"alpha", "delta", "delta_step", "capability_window", "overflow", "audit_share"}),
        ({"clip_cross": False}, {"delta", "delta_step"}),
        ({"modulate_gradient": False}, set()),
        ({"modulate_gradient": False, "advantage": "plain"}, {"capability_window"}),
    ],
)
def test_rule_uses_only_settings_that_change_its_training(rule, unused):
    names = ("alpha", "delta", "delta_step", "capability_window", "sharing", "overflow", "audit_share", "cross_weight")
    algorithm = algorithms()[rule.get("name", "hacpo")].model_validate(rule)
    found = {name for name in (*names, "beta", "epsilon") if not algorithm.uses(name)}
    assert found >= unused
    assert not found & {"beta", "epsilon"}
    if rule.get("name", "hacpo") == "hacpo" and rule.get("sharing", True):
        assert found == unused
