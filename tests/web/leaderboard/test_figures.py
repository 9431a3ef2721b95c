"""The board's pictures hold the table's numbers: seeds, Pareto front, sensitivity to a setting."""

import pytest

from hacrl_web.leaderboard.board.boards import alone_board
from hacrl_web.leaderboard.render import figures
from hacrl_web.leaderboard.render.context import pictures
from hacrl_web.runs.launch.launch import launch
from tests.support.web.factories import launch_request
from tests.support.web.leaderboard_help import by_name, finish, finished_sweep, sweep_of, table_of

pytestmark = pytest.mark.django_db


def traces(figure, mode):
    return [trace for trace in figure["data"] if trace.get("mode") == mode]


def test_one_seed_has_no_whiskers_and_several_have(user):
    one = table_of(finished_sweep(user, {"gspo": (0.4,), "hacpo": (0.5,)}))
    for figure in (figures.seed_dots(one), figures.pareto(one)):
        assert not [trace for trace in figure["data"] if "error_y" in trace]
    two = table_of(finished_sweep(user, {"gspo": (0.4, 0.5), "hacpo": (0.5, 0.7)}))
    (means,) = [trace for trace in figures.seed_dots(two)["data"] if "error_y" in trace]
    assert means["error_y"]["array"] == [two.cell(group).score.half_width for group in two.groups]
    assert len([trace for trace in figures.pareto(two)["data"] if "error_y" in trace]) == 2


def test_every_seed_is_a_dot(user):
    table = table_of(finished_sweep(user, {"gspo": (0.4, 0.5), "hacpo": (0.5, 0.7)}))
    _, dots, means = figures.seed_dots(table)["data"]
    assert (dots["x"], dots["y"], dots["customdata"]) == ([0.08, 0.08, 1.08, 1.08], [0.5, 0.7, 0.4, 0.5], [1, 2, 1, 2])
    assert means["y"] == [pytest.approx(0.6), pytest.approx(0.45)]


def test_front_is_drawn_and_spoken_of_only_where_it_has_two_points(client, user):
    client.force_login(user)
    sweep = sweep_of(user, ["gspo", "gspox2"], [0])
    runs = by_name(sweep)
    finish(runs["gspo", 0], {"A": 0.5, "B": 0.5}, rollouts=1000)
    finish(runs["gspox2", 0], {"A": 0.4, "B": 0.4}, rollouts=2000)
    assert traces(figures.pareto(table_of(sweep)), "lines") == []
    page = client.get(sweep.get_absolute_url()).content.decode()
    assert "dotted line" not in page
    assert "no row scores higher than gspo or costs less in rollouts generated per run." in page
    finish(runs["gspox2", 0], {"A": 0.6, "B": 0.6}, rollouts=2000, attempt=2)
    (line,) = traces(figures.pareto(table_of(sweep)), "lines")
    assert (line["x"], line["y"]) == ([1000, 2000], [0.5, 0.6])
    assert "dotted line is the Pareto front" in client.get(sweep.get_absolute_url()).content.decode()


def test_front_of_one_point_names_its_cost_the_ties_and_what_is_cheaper_in_another(user):
    sweep = sweep_of(user, ["gspo", "gspox2", "hacpo"], [0])
    runs = by_name(sweep)
    for name, score, seconds in (("gspo", 0.4, 10), ("gspox2", 0.5, 20), ("hacpo", 0.6, 30)):
        finish(runs[name, 0], {"A": score, "B": score}, rollouts=1000 + 500 * (name == "gspo"), seconds=seconds)
    text = next(one["text"] for one in pictures(table_of(sweep)) if one["name"] == "pareto")
    said = "no row scores higher than hacpo or costs less in rollouts generated per run (gspox2 costs the same)"
    assert f"{said}; in training hours per run, gspox2 and gspo cost less." in text


@pytest.mark.parametrize(("cost", "x"), [("rollouts", 1000), ("tokens", 10_000), ("training_hours", 0.01)])
def test_cost_of_the_pareto_picture_is_chosen(user, cost, x):
    (marks,) = traces(figures.pareto(table_of(finished_sweep(user, {"gspo": (0.4,)}), cost=cost)), "markers")
    assert marks["x"] == [pytest.approx(x)]


def grid_of(user, values, **gspo):
    """The table of HACPO runs with these (alpha, capability_window) -> score, and a GSPO run beside them."""
    request = launch_request(user)
    for (alpha, window), score in values.items():
        rule = {"name": "hacpo", "alpha": alpha, "capability_window": window}
        finish(launch(user, {**request, "algorithm": rule}), {"A": score, "B": score})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    return alone_board(user, request["group"], request["benchmark"])


def test_sensitivity_has_a_line_for_each_other_setting(user):
    values = {(0.0, 1): 0.4, (1.0, 1): 0.5, (0.0, 5): 0.6, (1.0, 5): 0.7}
    table = table_of(grid_of(user, values))
    grid = figures.make_grid(table)
    assert (grid.settings, grid.x) == (["algorithm.alpha", "algorithm.capability_window"], "algorithm.alpha")
    drawn = traces(figures.sensitivity(table, grid), "lines+markers")
    assert {trace["name"]: (trace["x"], trace["y"]) for trace in drawn} == {
        "hacpo capability_window=1": ([0, 1], [0.4, 0.5]),
        "hacpo capability_window=5": ([0, 1], [0.6, 0.7]),
    }
    # GSPO has no alpha: it lies across, as what the lines are compared with.
    (across,) = figures.sensitivity(table, grid)["layout"]["shapes"]
    assert across["y0"] == across["y1"] == 0.3


def test_other_axis_is_chosen_in_the_address(user):
    table = table_of(grid_of(user, {(0.0, 1): 0.4, (1.0, 5): 0.7}), x="algorithm.capability_window")
    grid = figures.make_grid(table)
    assert grid.x == "algorithm.capability_window"


def test_board_without_a_grid_has_no_sensitivity_picture(user):
    table = table_of(finished_sweep(user, {"gspo": (0.4,), "hacpo": (0.5,)}))
    assert figures.make_grid(table) is None


def test_markup_in_a_name_is_text_in_a_picture(user):
    sweep = finished_sweep(user, {"gspo": (0.4,)})
    table = table_of(sweep)
    table.groups[0].row.distinctions["group"] = "<b>&"
    assert figures.axis_label(table.groups[0]) == "gspo group=&lt;b&gt;&amp;"


def test_chart_of_differences_has_room_for_the_label_of_its_outermost_mark(user):
    """At the width of a phone half a label is up to 18 % of the axis."""
    table = table_of(finished_sweep(user, {"gspo": (0.4,), "hacpo": (0.6,)}))
    assert figures.differences(table)["layout"]["xaxis"]["range"] == pytest.approx([-0.01, 0.236])


def test_chart_of_differences_shows_each_seed_within_its_axis(user):
    table = table_of(finished_sweep(user, {"gspo": (0.4, 0.5, 0.45, 0.5), "hacpo": (0.5, 0.6, 0.55, 0.4)}))
    figure = figures.differences(table)
    dots = figure["data"][0]
    assert sorted(zip(dots["customdata"], dots["x"], strict=True))[-1][1] == pytest.approx(-0.1)
    assert len(dots["x"]) == 4
    low, high = figure["layout"]["xaxis"]["range"]
    assert low < min(dots["x"]) < max(dots["x"]) < high
