"""Parameters of a search: what their texts mean, what is refused in which words, and how points are drawn."""

import math

import pytest

from hacrl_web.runs.variants.parameters import Parameter, parameters_of
from hacrl_web.runs.variants.points import new_point, random_point, random_points
from hacrl_web.runs.variants.search_settings import search_of

RATE, ALPHA, SAMPLES = "training.learning_rate", "alpha", "rollout.num_generations"


def read(name, written) -> Parameter:
    errors: list = []
    parameters = parameters_of({name: written}, errors)
    assert errors == []
    return parameters[name]


def refusal(name, written) -> str:
    errors: list = []
    assert parameters_of({name: written}, errors) == {}
    (error,) = errors
    assert error.field == f"search.parameters.{name}"
    return error.message


def settings(**changes):
    request = {"method": "random", "trials": 4, "parameters": {ALPHA: "1..3", "cross_gate": ["hacpo", "signed"]}}
    errors: list = []
    result = search_of(request | changes, errors)
    assert errors == []
    return result


@pytest.mark.parametrize(
    ("name", "written", "low", "high", "is_log", "text"),
    [
        (RATE, "0.0001..0.01 log", 1e-4, 1e-2, True, "0.0001..0.01 log"),
        (RATE, " 1e-6 .. 1e-4 ", 1e-6, 1e-4, False, "1e-06..0.0001"),
        (SAMPLES, "2..8", 2, 8, False, "2..8"),
        (ALPHA, "1..3", 1.0, 3.0, False, "1..3"),
    ],
)
def test_range_is_read_with_its_scale_and_written_again(name, written, low, high, is_log, text):
    parameter = read(name, written)
    assert (parameter.low, parameter.high, parameter.is_log, parameter.request) == (low, high, is_log, text)
    assert read(name, text) == parameter
    assert parameter.is_whole == (name == SAMPLES)


def test_list_is_read_as_the_setting_reads_its_values():
    assert read("cross_gate", "hacpo, signed").choices == ("hacpo", "signed")
    assert read("modulate_gradient", [True, "false"]).choices == (True, False)
    assert read(SAMPLES, "2, 4 8").choices == (2, 4, 8)
    assert read(SAMPLES, [2, 4]).text == "2, 4"


@pytest.mark.parametrize(
    ("name", "written", "sentence"),
    [
        (ALPHA, "3..1", "A range begins with its lower number. You gave 3..1."),
        (ALPHA, "1..1", "A range begins with its lower number. You gave 1..1."),
        (ALPHA, "0..1 log", "A log range begins above 0. You gave 0: begin above it, or leave out log."),
        (ALPHA, "1..3 lg", "After a range only the word log is possible. You gave 'lg'."),
        (ALPHA, "1..", "A range has two numbers, such as 1..8 or 0.0001..0.01 log. You gave '1..'."),
        (ALPHA, "a..b", "Must be a number such as 0.001 (with a point, not a comma). You gave 'a'."),
        (RATE, "0.1..7", "Must be at most 1. You gave '7'."),
        ("cross_gate", "hacpo..signed", "A range is for numbers: give this setting's values with commas between them."),
        (ALPHA, "1", "One value leaves nothing to search: give a range or several values."),
        (ALPHA, [1, 1.0], "Each value may be named once."),
        (ALPHA, "", "Give a range such as 1..8 or 0.0001..0.01 log, or values such as 1, 2, 4."),
        (ALPHA, {"low": 1}, "Give a range such as 1..8 or 0.0001..0.01 log, or values such as 1, 2, 4."),
        (ALPHA, ["nan", 1], "Must be a finite number. You gave 'nan'."),
        (ALPHA, "9" * 2000, "At most 1000 characters are possible."),
    ],
)  # fmt: skip
def test_bad_text_is_refused_in_one_sentence(name, written, sentence):
    assert refusal(name, written) == sentence


def test_unknown_setting_is_refused():
    assert refusal("training.optimizer_of_mine", "1..2").startswith("A search varies numbers, switches and choices")


def test_draws_repeat_by_seed_and_number_and_stay_in_the_range():
    search = settings(parameters={RATE: "1e-6..1e-2 log", SAMPLES: "2..4"}, trials=200)
    points = random_points(search)
    assert points == random_points(search)
    assert [random_point(search, 7), random_point(search, 7, 1)] == [points[7], random_point(search, 7, 1)]
    assert random_point(search, 7) != random_point(search, 7, 1)
    rates = [point[RATE] for point in points]
    assert all(1e-6 <= rate <= 1e-2 and rate == float(f"{rate:.4g}") for rate in rates)
    # On a log scale each of the four decades has about a quarter of 200; on a linear one the lowest would have none.
    decades = [sum(10**-low > rate >= 10 ** -(low + 1) for rate in rates) for low in (2, 3, 4, 5)]
    assert all(30 <= number <= 70 for number in decades), decades
    # Each of 2, 3 and 4 has about a third: the ends are not half as likely as the middle.
    assert all(45 <= sum(point[SAMPLES] == number for point in points) <= 90 for number in (2, 3, 4))


def test_ends_of_a_rounded_range_are_not_passed():
    parameter = read(RATE, "0.00012345..0.00054321")
    assert parameter.rounded(0.00012345) == 0.00012345  # 0.0001234 is below it
    assert parameter.rounded(0.00054321) == 0.0005432
    assert math.isclose(parameter.rounded(0.000333333), 0.0003333)


def test_no_trial_repeats_an_earlier_one():
    search = settings(parameters={"cross_gate": ["hacpo", "signed"], SAMPLES: "2..3"}, trials=4)
    points = random_points(search)
    assert len({tuple(point.values()) for point in points}) == 4
    assert new_point(points, lambda draw: points[0]) == points[0]  # where there is no other


def test_search_of_more_trials_than_combinations_is_refused():
    errors: list = []
    search_of({"method": "random", "trials": 5, "parameters": {SAMPLES: "2..3", "cross_gate": "hacpo, signed"}}, errors)
    assert [(error.field, error.message) for error in errors] == [
        ("search.trials", "These values have 4 combinations: give at most 4 trials.")
    ]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"method": "bayes"}, "search.method"),
        ({"trials": 0}, "search.trials"),
        ({"trials": 201}, "search.trials"),
        ({"at_once": 0}, "search.at_once"),
        ({"at_once": 21}, "search.at_once"),
        ({"seed": -1}, "search.seed"),
        ({"pruner": "hyperband"}, "search.pruner"),
        ({"parameters": {}}, "search.parameters"),
        ({"budget": 3}, "search.budget"),
    ],
)
def test_settings_of_a_search_are_bounded(changes, field):
    errors: list = []
    assert search_of({"method": "random", "parameters": {ALPHA: "1..3"}} | changes, errors) is None
    assert [error.field for error in errors] == [field]


def test_grid_is_no_search():
    errors: list = []
    assert search_of({"method": "grid"}, errors) is None
    assert errors == []
    search_of({"method": "grid", "trials": 3}, errors)
    assert errors[0].field == "search.trials"
