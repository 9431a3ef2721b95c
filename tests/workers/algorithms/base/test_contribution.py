"""The weight without torch: held against the losses row by row, by hand, and against the rows of a real run."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.algorithms import hacpo
from workers.algorithms.base.contribution import WeightedRow, factors
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.base.tensors import MicroBatch
from workers.algorithms.registry import algorithms

ROWS = 4000


def rule(name: str = "hacpo", **changes) -> AlgorithmSpec:
    return algorithms()[name](**{"epsilon": 3e-4, "epsilon_high": 4e-4, "beta": 0.0, **changes})


def batch(spread: float, count: int = ROWS, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """log s about 0, some of them beyond the limit of 10, and A, some of them 0; (count,) float32 each."""
    generator = torch.Generator().manual_seed(seed)
    log_ratio = torch.randn(count, generator=generator) * spread
    log_ratio[:40] = torch.linspace(-14, 14, 40)
    advantages = torch.randn(count, generator=generator)
    advantages[::17] = 0.0
    return log_ratio, advantages


def by_torch(algorithm: AlgorithmSpec, log_ratio, advantages, *, is_own: bool, omega: float, update_index: int):
    """The stats of the run's own loss: one token a row, its old log-probability 0."""
    found = MicroBatch(
        logps=log_ratio[:, None],
        mask=torch.ones(len(log_ratio), 1),
        old_mean_logp=torch.zeros(len(log_ratio)),
        advantages=advantages,
        is_self=torch.full((len(log_ratio),), is_own),
        omega=torch.tensor([omega] * len(log_ratio)),
        source_lengths=torch.ones(len(log_ratio)),
    )
    _, stats = algorithm.loss(found, update_index, float(len(log_ratio)))
    return {name: stats[name].tolist() for name in ("sequence_ratio", "clip_side", "weight", "gradient_flows")}


CASES = [
    {"cross_clip_gradient": mode, "clip_cross": is_clipped, "delta": delta, "cross_weight": weight, "alpha": alpha}
    for mode, is_clipped, delta, weight in (
        ("zero", True, 0.2, 1.0),
        ("keep", True, 0.8, 0.5),
        ("sided", True, 0.3, 1 / 7),
        ("keep", False, 0.2, 1.0),
    )
    for alpha in (0.0, 1.0, 2.0)
]


@pytest.mark.parametrize("changes", CASES, ids=str)
@pytest.mark.parametrize("is_own", [False, True])
def test_weights_and_sides_are_the_losses_own_bit_for_bit(changes, is_own):
    algorithm = rule(**changes)
    log_ratio, advantages = batch(0.0005 if is_own else 0.5)
    omega = 1.0 if is_own else 1.2345678901234
    stats = by_torch(algorithm, log_ratio, advantages, is_own=is_own, omega=omega, update_index=2)
    sides, weights = algorithm.weigh(is_own, 2, stats["sequence_ratio"], advantages.tolist(), omega)
    assert sides == stats["clip_side"]
    assert weights == stats["weight"]
    assert [bool(weight) for weight in weights] == stats["gradient_flows"]


@pytest.mark.parametrize("alpha", [0.5, 1.7, 3.0, 10.0])
def test_other_exponents_differ_in_the_last_bit_at_most(alpha):
    algorithm = rule(alpha=alpha, delta=0.9)
    log_ratio, advantages = batch(0.3)
    stats = by_torch(algorithm, log_ratio, advantages, is_own=False, omega=0.7, update_index=0)
    sides, weights = algorithm.weigh(False, 0, stats["sequence_ratio"], advantages.tolist(), 0.7)
    assert sides == stats["clip_side"]
    for ours, theirs in zip(weights, stats["weight"], strict=True):
        assert abs(ours - theirs) <= 2.5e-7 * abs(theirs)


@pytest.mark.parametrize("name", ["gspo", "naive_source", "naive_learner"])
@pytest.mark.parametrize("is_own", [False, True])
def test_rules_without_a_cross_term_weigh_every_row_as_an_own_one(name, is_own):
    algorithm = rule(name=name)
    log_ratio, advantages = batch(0.0005)
    stats = by_torch(algorithm, log_ratio, advantages, is_own=is_own, omega=3.0, update_index=1)
    sides, weights = algorithm.weigh(is_own, 1, stats["sequence_ratio"], advantages.tolist(), 3.0)
    assert (sides, weights) == (stats["clip_side"], stats["weight"])


def test_lower_bound_is_the_algorithms():
    for delta, step in ((0.2, 0.025), (0.8, 0.01), (0.1, 0.3), (1.0, 0.0)):
        algorithm = rule(delta=delta, delta_step=step)
        for m in range(12):
            assert algorithm.shared_band(m) == (hacpo.lower_bound(m, algorithm), 1.0)


def test_steps_of_a_shared_row_by_hand():
    # s = .5, band [.8, 1] at m = 0: c = .8, c / s = 1.6, c^2 = .64, * 1.5 * -2 * .5 = -.96; no gradient: 0.
    algorithm = rule(cross_weight=0.5, alpha=1.0)
    taken = WeightedRow(is_own=False, update_index=0, sequence_ratio=0.5, advantage=-2.0, omega=1.5, weight=0.0)
    found = factors(algorithm.explain(taken))
    assert [step.symbol for step in found] == ["s", "c / s", "c^α", "ω", "A", "cross_weight", "1[flows]"]
    assert [step.value for step in found] == pytest.approx([0.5, 1.6, 0.8, 1.5, -2.0, 0.5, 0.0], rel=1e-7)
    assert [step.product for step in found] == pytest.approx([0.5, 0.8, 0.64, 0.96, -1.92, -0.96, 0.0], rel=1e-7)
    assert "below the band" in found[-1].why
    # The band of m = 12 is [1.0, 1]: .8 + 12 * .025 > 1.
    assert "[1, 1]" in factors(algorithm.explain(WeightedRow(False, 12, 0.5, -2.0, 1.5, 0.0)))[1].why


def test_steps_of_an_own_row_say_which_branch_was_taken():
    # s = 1.1, A = 2: s A = 2.2, c A = 1.0004 * 2: the minimum is the clipped branch, which has no gradient.
    clipped = factors(rule().explain(WeightedRow(True, 0, 1.1, 2.0, 1.0, 0.0)))
    assert [step.value for step in clipped] == [1.1, 2.0, 0.0]
    assert "min(2.2, 2.001)" in clipped[-1].why
    # A = -2: s A = -2.2 is the minimum.
    assert factors(rule().explain(WeightedRow(True, 0, 1.1, -2.0, 1.0, -2.2)))[-1].product == pytest.approx(-2.2)


@pytest.mark.parametrize("name", ["gspo", "grpo", "cispo"])
def test_importance_weight_is_one_more_factor_of_an_own_row(name):
    # s = 1.5 is inside no band for A = 2; with A = -2 the minimum is s A = -3, times w = .5: -1.5.
    row = WeightedRow(True, 0, 1.5, -2.0, 1.0, -1.5, importance=0.5)
    found = factors(rule(name=name).explain(row))
    assert [(step.symbol, step.value) for step in found if step.symbol in ("A", "w")] == [("A", -2.0), ("w", 0.5)]
    assert found[-1].product == pytest.approx(-1.5)
    assert "A · w" in rule(name=name).equation(row)
    assert "w" not in [step.symbol for step in factors(rule(name=name).explain(replace(row, importance=1.0)))]


@pytest.fixture(scope="module")
def real_rows(tmp_path_factory):
    """Contributions of a real run of two agents, and its rule."""
    root = tmp_path_factory.mktemp("real")
    spec = make_spec(
        root,
        make_pair(root),
        rollout={"num_generations": 8},
        training={"steps": 6, "train_batch_size": 8, "mini_batch_size": 4},
        evaluation={"eval_interval": 100},
        algorithm={"cross_weight": 0.7},
    )
    train(spec, root / "run")
    return records(root / "run", "contribution"), records(root / "run", "metrics"), spec.rule


def taken(row: dict) -> WeightedRow:
    names = ("mini_batch", "sequence_ratio", "advantage", "omega", "weight")
    return WeightedRow(row["agent"] == row["source"], *(row[name] for name in names))


def test_product_of_the_steps_is_the_weight_that_the_trainer_used_in_1000_rows(real_rows):
    rows, _, algorithm = real_rows
    evaluated = [row for row in rows if row["sequence_ratio"] is not None]
    chosen = random.Random(0).sample(evaluated, 1000)
    assert sum(row["weight"] != 0 for row in chosen if row["agent"] != row["source"]) > 100
    for row in chosen:
        product = factors(algorithm.explain(taken(row)))[-1].product
        assert math.isclose(product, row["weight"], rel_tol=1e-6, abs_tol=0)


def test_recorded_settings_give_every_recorded_weight_and_share_again(real_rows):
    rows, metrics, algorithm = real_rows
    sides: dict[tuple, list[int]] = {}
    for row in rows:
        if row["sequence_ratio"] is None:
            assert row["weight"] == 0
            continue
        is_own = row["agent"] == row["source"]
        found = algorithm.weigh(is_own, row["mini_batch"], [row["sequence_ratio"]], [row["advantage"]], row["omega"])
        assert found.weights == [row["weight"]]
        sides.setdefault((row["step"], row["agent"], row["source"]), []).extend(found.sides)
    told = [event for event in metrics if event["source"]]
    assert len(told) == 12  # two pairs, six steps
    for event in told:
        found = sides.get((event["step"], event["agent"], event["source"]), [])
        assert event["ratios"]["clip_lower_frac"] == [found.count(-1), len(found)]
        assert event["ratios"]["clip_upper_frac"] == [found.count(1), len(found)]
