"""Optuna's answers come from the stored trials alone: a study that is built again gives the same ones."""

import math

import pytest

from hacrl_web.runs.models import Trial
from hacrl_web.runs.variants.optuna_study import first_pruned_step, suggested_point
from hacrl_web.runs.variants.search_settings import search_of

RATE = "training.learning_rate"


def settings(**changes):
    parameters = {RATE: "1e-6..1e-2 log", "alpha": "1..3", "rollout.num_generations": "2..8"}
    parameters["cross_gate"] = "hacpo, signed"
    errors: list = []
    result = search_of({"method": "optuna", "trials": 40, "parameters": parameters} | changes, errors)
    assert errors == []
    return result


def completed_trials(search, count: int) -> list[Trial]:
    """Trials one after the other; the objective is 1 at a rate of 1e-4, and a quarter less with each decade."""
    trials: list[Trial] = []
    for number in range(count):
        point = suggested_point(search, trials, number)
        value = 1 - abs(math.log10(point[RATE]) + 4) / 4
        trials.append(Trial(number=number, parameters=point, state="completed", value=value))
    return trials


def test_study_built_again_gives_the_same_next_suggestion():
    search = settings()
    trials = completed_trials(search, 14)
    for state in ("running", "failed"):
        number = len(trials)
        trials.append(Trial(number=number, parameters=suggested_point(search, trials, number), state=state))
    first = suggested_point(search, trials, 16)
    copies = [Trial(number=t.number, parameters=dict(t.parameters), state=t.state, value=t.value) for t in trials]
    assert suggested_point(search, copies, 16) == first
    assert suggested_point(search, copies, 16, draw=1) != first
    assert suggested_point(settings(seed=1), copies, 16) != first


def test_points_are_in_their_ranges_and_near_the_best_after_the_random_ones():
    trials = completed_trials(settings(), 30)
    for trial in trials:
        point = trial.parameters
        assert 1e-6 <= point[RATE] <= 1e-2
        assert 1 <= point["alpha"] <= 3
        assert point["rollout.num_generations"] in range(2, 9)
        assert point["cross_gate"] in ("hacpo", "signed")
    # Uniform draws of the exponent from -6 to -2 are 1 decade from -4 on average, which costs 0.25.
    assert sum(1 - trial.value for trial in trials[20:]) / 10 < 0.15


def scored(search, *scores: dict[str, float]) -> list[Trial]:
    trials = completed_trials(search, len(scores))
    for trial, some in zip(trials, scores, strict=True):
        trial.scores = some
    return trials


def judged(search, others, scores: dict[int, float]) -> tuple[int | None, Trial]:
    trial = Trial(number=len(others), parameters=suggested_point(search, others, len(others)), state="running")
    return first_pruned_step(search, [*others, trial], trial, scores, 2), trial


def test_median_prunes_below_the_median_once_five_have_completed():
    search = settings(pruner="median")
    others = scored(search, *({"2": score, "4": 0.9} for score in (0.1, 0.2, 0.3, 0.4, 0.5)))
    # The median at step 2 is 0.3, at step 4 0.9.
    assert judged(search, others, {2: 0.25})[0] == 2
    assert judged(search, others, {2: 0.35})[0] is None
    assert judged(search, others, {2: 0.35, 4: 0.8})[0] == 4
    assert judged(search, others[:4], {2: 0.05})[0] is None


def test_halving_keeps_the_better_half_of_each_rung_and_stores_its_rungs():
    search = settings(pruner="halving")
    # Rungs are at 2, 4 and 8 steps. The first that reaches a rung has nobody to be compared with.
    step, first = judged(search, [], {2: 0.5})
    assert (step, list(first.rungs.values())) == (None, [0.5])
    step, second = judged(search, [first], {2: 0.4})
    assert (step, second.scores) == (2, {"2": 0.4})
    step, third = judged(search, [first], {2: 0.6})
    assert (step, list(third.rungs.values())) == (None, [0.6])


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_failed_trials_do_not_change_what_tpe_knows(state):
    search = settings()
    trials = completed_trials(search, 12)
    lost = Trial(number=12, parameters=trials[0].parameters, state=state)
    assert suggested_point(search, [*trials, lost], 13) == suggested_point(search, trials, 13)
