"""Confidence intervals: by hand, and against known distributions."""

import math
import random

import pytest

from hacrl_web.leaderboard.board.cells import paired
from hacrl_web.web.statistics import MeanInterval, mean_interval, t95

TRIALS = 4000


def test_confidence_interval_by_hand():
    # mean 0.5, deviations -0.1 0 0.1: s = 0.1; 4.303 * 0.1 / sqrt(3) = 0.248434
    found = mean_interval([0.4, 0.5, 0.6])
    assert found.mean == pytest.approx(0.5, abs=1e-12)
    assert found.half_width == pytest.approx(4.303 * 0.1 / math.sqrt(3), abs=1e-12)
    assert found.low == pytest.approx(0.251566, abs=1e-6)
    assert mean_interval([0.4]) == MeanInterval(0.4, None, 1)
    assert mean_interval([]) is None


def test_t_table_holds_the_known_points():
    assert [t95(d) for d in (1, 2, 5, 10, 15, 16, 30)] == [12.706, 4.303, 2.571, 2.228, 2.131, 2.120, 2.042]
    assert [t95(d) for d in (31, 40, 59, 60, 120, 10_000)] == [2.042, 2.021, 2.021, 2.000, 1.980, 1.980]


def test_what_rounding_adds_to_equal_seeds_is_no_interval():
    assert mean_interval([0.1 + 0.2, 0.3, 0.3]).are_seeds_equal  # 0.1 + 0.2 is 0.30000000000000004
    assert not mean_interval([0.3, 0.3, 0.300001]).are_seeds_equal
    assert not mean_interval([0.3]).are_seeds_equal
    # Of a difference too: 0.30000000000000004 - 0.3 is 5.6e-17, and all of it is rounding.
    gap = paired({0: 0.1 + 0.2, 1: 0.3}, {0: 0.3, 1: 0.3})
    assert (gap.mean, gap.half_width, gap.is_clear) == (0.0, 0.0, False)


def coverage(chance: random.Random, seeds: int, true: float) -> float:
    """Share of intervals over so many normal scores that hold the true mean."""
    held = 0
    for _ in range(TRIALS):
        found = mean_interval([chance.gauss(true, 0.05) for _ in range(seeds)])
        held += found.low <= true <= found.high
    return held / TRIALS


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_interval_holds_the_true_mean_19_times_of_20(seeds):
    # Standard error of a share of .95 over 4000 trials: sqrt(.95 * .05 / 4000) = .0034; three of them are allowed.
    # A normal's 1.96 in place of t would hold .70, .81, .88 and .92.
    assert coverage(random.Random(7), seeds, 0.6) == pytest.approx(0.95, abs=0.0104)


@pytest.mark.parametrize(("effect", "shared"), [(0.0, 0.1), (0.05, 0.1), (0.05, 0.0)])
def test_paired_interval_holds_the_true_difference_whatever_the_seeds_share(effect, shared):
    chance = random.Random(11)
    held, widths = 0, []
    for _ in range(TRIALS):
        luck = [chance.gauss(0, shared) for _ in range(3)]  # of a seed: the same for both algorithms
        base = {seed: 0.5 + luck[seed] + chance.gauss(0, 0.02) for seed in range(3)}
        mine = {seed: 0.5 + effect + luck[seed] + chance.gauss(0, 0.02) for seed in range(3)}
        found = paired(mine, base)
        held += found.low <= effect <= found.high
        widths.append(found.half_width)
    assert held / TRIALS == pytest.approx(0.95, abs=0.0104)
    # The difference has sd .02 * sqrt(2); E[s] of three values is .8862 sd: 4.303 * .8862 * .02828 / sqrt(3) = .0623,
    # and what the seeds share is not in it.
    assert sum(widths) / TRIALS == pytest.approx(0.0623, rel=0.03)


def test_equal_algorithms_are_told_apart_once_in_twenty():
    chance = random.Random(5)
    clear = 0
    for _ in range(TRIALS):
        found = paired({s: chance.gauss(0.5, 0.05) for s in range(3)}, {s: chance.gauss(0.5, 0.05) for s in range(3)})
        clear += found.is_clear
    assert clear / TRIALS == pytest.approx(0.05, abs=0.0104)


def test_only_common_seeds_are_paired():
    assert paired({1: 0.5, 2: 0.9, 4: 0.7}, {1: 0.4, 3: 0.1, 4: 0.4}).mean == pytest.approx(0.2)  # (.1 + .3) / 2
    assert paired({1: 0.5}, {2: 0.4}) is None
