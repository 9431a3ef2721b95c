"""avg@k, pass@k, maj@k and best@k against exact enumeration: all subsets, all orders in which ties may be broken."""

from __future__ import annotations

import random
from itertools import combinations, permutations
from statistics import fmean

import pytest

from workers.contract.sample_estimators import FORMULAS, Tally, Vote, estimates, formula, maj_at_k, pass_at_k, sizes


@pytest.mark.parametrize("num_scored", range(1, 9))
def test_pass_at_k_is_the_share_of_all_subsets_that_hold_a_right_one(num_scored):
    for num_right in range(num_scored + 1):
        samples = [place < num_right for place in range(num_scored)]
        for k in range(1, num_scored + 1):
            exact = fmean(any(subset) for subset in combinations(samples, k))
            assert pass_at_k(num_scored, num_right, k) == pytest.approx(exact, abs=1e-12)


def test_pass_at_k_by_hand():
    # n = 4, c = 1, k = 2: C(3, 2) = 3 of the C(4, 2) = 6 pairs lack the right one.
    assert pass_at_k(4, 1, 2) == 0.5
    assert pass_at_k(30, 0, 30) == 0.0
    assert pass_at_k(30, 1, 30) == 1.0


@pytest.mark.parametrize(("num_scored", "k"), [(3, 4), (3, 0), (0, 1)])
def test_pass_at_k_refuses_what_the_samples_cannot_say(num_scored, k):
    with pytest.raises(ValueError, match=f"pass@{k} needs"):
        pass_at_k(num_scored, 0, k)


def test_maj_at_k_is_the_mean_over_all_ways_to_break_ties():
    chance = random.Random(1)
    for _ in range(300):
        votes = [Vote(chance.randrange(1, 4), False) for _ in range(chance.randrange(1, 5))]
        if chance.random() < 0.7:  # at most one answer is right
            votes[0] = Vote(votes[0].count, True)
        # Whoever stands first in an order wins its ties: each order is one way to break them.
        winners = [max(order, key=lambda vote: vote.count) for order in permutations(votes)]
        assert maj_at_k(votes) == pytest.approx(fmean(vote.is_correct for vote in winners), abs=1e-12)


def test_maj_at_k_of_no_votes_is_wrong():
    assert maj_at_k([]) == 0.0


def test_estimates_of_three_questions_by_hand():
    tallies = [
        Tally(4, 4, [Vote(4, True)]),
        Tally(4, 1, [Vote(1, True), Vote(1, False), Vote(2, False)]),
        Tally(2, 1, [Vote(1, True), Vote(1, False)]),  # two of four could not be scored
        Tally(0, 0, []),  # none could: in no estimate
    ]
    assert estimates(tallies, 4) == {
        "avg@4": pytest.approx((1 + 1 / 4 + 1 / 2) / 3),
        "pass@1": pytest.approx((1 + 1 / 4 + 1 / 2) / 3),
        "pass@2": pytest.approx((1 + 1 / 2 + 1) / 3),
        "pass@4": pytest.approx((1 + 1) / 2),  # the third has too few scored samples
        "maj@4": pytest.approx((1 + 0 + 1 / 2) / 3),
        "best@4": 1.0,
    }


def test_one_sample_makes_all_estimates_the_accuracy():
    found = estimates([Tally(1, 1, [Vote(1, True)]), Tally(1, 0, [Vote(1, False)])], 1)
    assert found == {"avg@1": 0.5, "pass@1": 0.5, "maj@1": 0.5, "best@1": 0.5}


def test_nothing_scored_gives_no_estimate():
    assert estimates([Tally(0, 0)], 4) == {}


def test_every_estimate_has_its_formula():
    assert {name.partition("@")[0] for name in estimates([Tally(2, 1)], 2)} == set(FORMULAS)
    assert all(formula(name) for name in estimates([Tally(2, 1)], 2))
    assert formula("accuracy") == ""


def test_sizes_are_powers_of_two_and_the_number_itself():
    assert [list(sizes(count)) for count in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]
