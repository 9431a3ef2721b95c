"""The leaderboard's numbers, worked out by hand."""

import math
from datetime import UTC, datetime

import pytest
from django.urls import reverse

from hacrl_web.insight.estimate import Estimate, estimate, t95
from hacrl_web.leaderboard import scores, views
from hacrl_web.leaderboard.figures import accuracy_bars, pareto
from hacrl_web.leaderboard.scores import boards, rows, run_results, sweep_board
from hacrl_web.runs.launch import launch
from hacrl_web.runs.models import Run, State, TelemetryEvent
from hacrl_web.runs.sweeps import launch_sweep
from tests.web.factories import launch_request, make_user

pytestmark = pytest.mark.django_db


def sweep_of(user, algorithms, seeds, **changes):
    request = launch_request(user, **changes)
    del request["algorithm"], request["seed"]
    return launch_sweep(user, {**request, "algorithms": algorithms, "seeds": seeds})


def finish(run: Run, final: dict[str, float], start: float = 0.1, rollouts: int = 1000, attempt: int = 1) -> None:
    """Complete a run with these accuracies."""
    for seq, (agent, value) in enumerate(final.items()):
        for step, accuracy in ((0, start), (5, value)):
            TelemetryEvent.objects.create(
                run=run,
                seq=attempt * 100 + seq * 2 + (step > 0),
                attempt=attempt,
                type="evaluation",
                step=step,
                agent=agent,
                payload={"metric": "accuracy", "value": accuracy, "correct": int(accuracy * 100), "asked": 100},
                time=0,
            )
    progress = {"rollouts_generated": rollouts, "tokens_generated": rollouts * 10, "elapsed_s": 20.0}
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED, progress=progress)


def by_name(sweep) -> dict[tuple[str, int], Run]:
    return {(run.algorithm, run.seed): run for run in sweep.runs.all()}


def test_confidence_interval_by_hand():
    # mean 0.5, deviations -0.1 0 0.1: s = 0.1; 4.303 * 0.1 / sqrt(3) = 0.248434
    found = estimate([0.4, 0.5, 0.6])
    assert found.mean == pytest.approx(0.5, abs=1e-12)
    assert found.half_width == pytest.approx(4.303 * 0.1 / math.sqrt(3), abs=1e-12)
    assert found.low == pytest.approx(0.251566, abs=1e-6)
    assert estimate([0.4]) == Estimate(0.4, None, 1)
    assert estimate([]) is None


def test_t_table_holds_the_known_points():
    assert [t95(d) for d in (1, 2, 5, 10, 15, 16, 30)] == [12.706, 4.303, 2.571, 2.228, 2.131, 2.120, 2.042]
    assert [t95(d) for d in (31, 40, 59, 60, 120, 10_000)] == [2.042, 2.021, 2.021, 2.000, 1.980, 1.980]


def test_sweep_board_by_hand(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1, 2])
    runs = by_name(sweep)
    finish(runs["gspo", 1], {"A": 0.4, "B": 0.6})  # mean .5
    finish(runs["gspo", 2], {"A": 0.3, "B": 0.5})  # mean .4
    finish(runs["hacpo", 1], {"A": 0.6, "B": 0.8})  # mean .7, +.2
    finish(runs["hacpo", 2], {"A": 0.7, "B": 0.7}, rollouts=3000)  # mean .7, +.3
    board = sweep_board(sweep)
    hacpo, gspo = board.rows
    assert (hacpo.algorithm, gspo.algorithm, board.agent_names) == ("hacpo", "gspo", ["A", "B"])
    assert hacpo.final.mean == pytest.approx(0.7)
    assert hacpo.start.mean == pytest.approx(0.1)
    assert gspo.final.mean == pytest.approx(0.45)
    assert gspo.gain_over_gspo is None
    assert hacpo.gain_over_gspo.mean == pytest.approx(0.25)
    # differences .2 and .3: s = .0707107; 12.706 * .0707107 / sqrt(2) = .6353
    assert hacpo.gain_over_gspo.half_width == pytest.approx(0.6353, abs=1e-4)
    assert hacpo.seeds == [1, 2]
    assert (hacpo.rollouts, hacpo.tokens, hacpo.device_seconds) == (2000, 20_000, 20.0)
    assert hacpo.score_per_1000_rollouts == pytest.approx(0.3)  # (.7 - .1) / 2
    a, b = hacpo.agents
    assert (a.agent, b.agent) == ("A", "B")
    assert a.final.mean == pytest.approx(0.65)
    assert a.gain_over_gspo.mean == pytest.approx(0.3)  # (.6 - .4, .7 - .3)
    assert b.gain_over_gspo.mean == pytest.approx(0.2)


def test_only_common_seeds_are_paired(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1, 2])
    runs = by_name(sweep)
    finish(runs["gspo", 1], {"A": 0.4, "B": 0.4})
    finish(runs["hacpo", 1], {"A": 0.5, "B": 0.5})
    finish(runs["hacpo", 2], {"A": 0.9, "B": 0.9})
    hacpo = sweep_board(sweep).rows[0]
    assert hacpo.final.mean == pytest.approx(0.7)
    assert hacpo.gain_over_gspo == Estimate(pytest.approx(0.1), None, 1)


def test_runs_that_are_not_completed_do_not_count(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1])
    runs = by_name(sweep)
    finish(runs["gspo", 1], {"A": 0.4, "B": 0.4})
    finish(runs["hacpo", 1], {"A": 0.5, "B": 0.5})
    Run.objects.filter(pk=runs["hacpo", 1].pk).update(state=State.FAILED)
    assert [row.algorithm for row in sweep_board(sweep).rows] == ["gspo"]


def test_run_without_an_evaluation_of_each_agent_is_left_out(user):
    sweep = sweep_of(user, ["gspo"], [1])
    finish(sweep.runs.get(), {"A": 0.4})
    assert run_results(sweep.runs.all()) == []


def test_evaluation_of_the_highest_attempt_counts(user):
    sweep = sweep_of(user, ["gspo"], [1])
    finish(sweep.runs.get(), {"A": 0.4, "B": 0.4}, attempt=2)
    finish(sweep.runs.get(), {"A": 0.9, "B": 0.9}, attempt=1)
    assert run_results(sweep.runs.all())[0].accuracy_final == pytest.approx(0.4)


def test_settings_of_the_cross_rollouts_make_rows_but_do_not_part_them_from_gspo(user):
    request = launch_request(user, algorithm={"name": "hacpo", "alpha": 1.0})
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "hacpo", "alpha": 3.0}}), {"A": 0.6, "B": 0.6})
    finish(launch(user, {**request, "algorithm": {"name": "gspo", "alpha": 1.0}}), {"A": 0.3, "B": 0.3})
    (board,) = boards(user)
    assert board.sweep is None
    found = [(row.algorithm, row.settings, row.gain_over_gspo and row.gain_over_gspo.mean) for row in board.rows]
    assert found == [
        ("hacpo", {"algorithm.alpha": 3.0}, pytest.approx(0.3)),
        ("hacpo", {"algorithm.alpha": 1.0}, pytest.approx(0.2)),
        ("gspo", {}, None),
    ]


def test_second_run_of_a_seed_replaces_the_first(user):
    request = launch_request(user)
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    finish(launch(user, request), {"A": 0.7, "B": 0.7})
    (row,) = rows(Run.objects.all())
    assert (row.final.mean, row.final.count) == (pytest.approx(0.7), 1)


def test_rows_that_cannot_be_told_apart_are_both_best(user):
    sweep = sweep_of(user, ["gspo", "gspox2", "hacpo"], [1, 2, 3])
    finals = {"gspo": (0.3, 0.31, 0.32), "gspox2": (0.6, 0.5, 0.7), "hacpo": (0.61, 0.63, 0.62)}
    for (algorithm, seed), run in by_name(sweep).items():
        finish(run, dict.fromkeys("AB", finals[algorithm][seed - 1]))
    assert {row.algorithm: row.is_best for row in sweep_board(sweep).rows} == {
        "hacpo": True,
        "gspox2": True,
        "gspo": False,
    }


def test_nothing_is_best_before_all_rows_have_the_same_two_seeds(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1, 2])
    for (algorithm, seed), run in by_name(sweep).items():
        if algorithm == "gspo" or seed == 1:
            finish(run, dict.fromkeys("AB", 0.9 if algorithm == "hacpo" else 0.1))
    assert [row.is_best for row in sweep_board(sweep).rows] == [False, False]


def test_boards_show_only_what_the_user_may_see(user):
    sweep = sweep_of(user, ["gspo"], [1])
    finish(sweep.runs.get(), {"A": 0.4, "B": 0.4})
    assert [board.sweep for board in boards(user)] == [sweep]
    assert boards(make_user()) == []
    assert len(boards(make_user(is_staff=True))) == 1


def test_run_launched_alone_is_paired_with_a_gspo_that_left_the_cross_settings_at_their_defaults(user):
    request = launch_request(user)
    cross = {"delta": 0.3, "delta_step": 0.01, "cross_weight": 0.5, "capability_window": 7, "ratio_max": 4.0}
    finish(launch(user, {**request, "algorithm": {"name": "hacpo", **cross}}), {"A": 0.5, "B": 0.7})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    finish(launch(user, {**request, "algorithm": {"name": "gspo", "delta": 0.4}, "seed": 2}), {"A": 0.3, "B": 0.3})
    (board,) = boards(user)
    hacpo, gspo = board.rows
    assert hacpo.gain_over_gspo == Estimate(pytest.approx(0.3), None, 1)
    assert (gspo.seeds, gspo.settings) == ([1, 2], {})


@pytest.mark.parametrize("epsilon", [{}, {"epsilon": 0.2, "epsilon_high": 0.28}, {"epsilon": 3e-4}])
def test_every_rule_is_paired_with_the_gspo_of_the_same_request(user, epsilon):
    names = ["gspo", "grpo", "naive_source", "naive_learner", "hacpo"]
    sweep = sweep_of(user, names, [1])
    for place, name in enumerate(names):
        run = by_name(sweep)[name, 1]
        Run.objects.filter(pk=run.pk).update(
            spec=run.spec | {"algorithm": run.spec["algorithm"] | epsilon | {"name": name}}
        )
        finish(run, dict.fromkeys("AB", 0.3 + 0.1 * place))
    gains = {row.algorithm: row.gain_over_gspo and row.gain_over_gspo.mean for row in sweep_board(sweep).rows}
    assert gains == {"gspo": None} | {name: pytest.approx(0.1 * place) for place, name in enumerate(names) if place}


def test_empty_epsilon_is_the_algorithms_own_and_options_of_sharing_part_no_gspo(user):
    request = launch_request(user)
    sharing = {"advantage": "plain", "modulate_gradient": False, "clip_cross": False, "cross_kl": True}
    sharing |= {"max_sources_per_learner": 1, "on_missing_source": "degrade", "cross_advantage": "source"}
    sharing |= {"peer_quarantine": True, "quarantine_interval": 2, "audit_share": 0.5}
    finish(launch(user, {**request, "algorithm": {"name": "hacpo", **sharing}}), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    written_out = {"name": "gspo", "epsilon": 3e-4, "epsilon_high": 4e-4}
    finish(launch(user, {**request, "algorithm": written_out, "seed": 2}), {"A": 0.3, "B": 0.3})
    (board,) = boards(user)
    hacpo, gspo = board.rows
    assert hacpo.gain_over_gspo == Estimate(pytest.approx(0.2), None, 1)
    assert (gspo.seeds, gspo.settings) == ([request["seed"], 2], {})


@pytest.mark.parametrize("changed", [{"scale_rewards": "none"}, {"beta": 0.5}, {"epsilon": 0.1}, {"eos": "strip"}])
def test_settings_that_act_on_gspo_are_not_paired(user, changed):
    request = launch_request(user)
    finish(launch(user, {**request, "algorithm": {"name": "hacpo", **changed}}), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    (board,) = boards(user)
    assert [row.gain_over_gspo for row in board.rows] == [None, None]


def test_leaderboard_works_out_only_the_boards_of_its_page(user, client, monkeypatch):
    for _ in range(3):
        finish(sweep_of(user, ["gspo"], [1]).runs.get(), {"A": 0.4, "B": 0.4})
    finish(launch(user, launch_request(user)), {"A": 0.5, "B": 0.5})
    worked_out = []
    real = scores.rows
    monkeypatch.setattr(scores, "rows", lambda runs: worked_out.append(1) or real(runs))
    monkeypatch.setattr(views, "PAGE_SIZE", 2)
    client.force_login(user)
    for page in (1, 2):
        response = client.get(reverse("leaderboard:index"), {"page": page})
        assert (len(response.context["page"]), response.context["page"].paginator.count) == (2, 4)
        assert len(worked_out) == 2 * page
    assert [board.sweep is None for board in response.context["page"]] == [False, True]


def traces(figure, mode):
    return [trace for trace in figure["data"] if trace.get("mode") == mode]


def test_one_seed_has_no_whiskers_and_several_have(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [0])
    for number, run in enumerate(sweep.runs.all()):
        finish(run, {"A": 0.4 + number / 10, "B": 0.4})
    board = sweep_board(sweep)
    for figure in (accuracy_bars(board.rows), pareto(board.rows)):
        assert not [trace for trace in figure["data"] if "error_y" in trace]
    sweep = sweep_of(user, ["gspo", "hacpo"], [0, 1])
    for number, run in enumerate(sweep.runs.all()):
        finish(run, {"A": 0.4 + number / 10, "B": 0.4})
    board = sweep_board(sweep)
    assert accuracy_bars(board.rows)["data"][0]["error_y"]["array"] == [row.final.half_width for row in board.rows]
    assert len([trace for trace in pareto(board.rows)["data"] if "error_y" in trace]) == 2


def test_front_is_drawn_and_spoken_of_only_where_it_has_two_points(client, user):
    client.force_login(user)
    sweep = sweep_of(user, ["gspo", "gspox2"], [0])
    runs = by_name(sweep)
    finish(runs["gspo", 0], {"A": 0.5, "B": 0.5}, rollouts=1000)
    finish(runs["gspox2", 0], {"A": 0.4, "B": 0.4}, rollouts=2000)
    assert traces(pareto(sweep_board(sweep).rows), "lines") == []
    page = client.get(sweep.get_absolute_url()).content.decode()
    assert "dotted line" not in page
    assert "gspo is highest and none is cheaper" in page
    TelemetryEvent.objects.filter(run=runs["gspox2", 0], step=5).delete()
    finish(runs["gspox2", 0], {"A": 0.6, "B": 0.6}, rollouts=2000, attempt=2)
    (line,) = traces(pareto(sweep_board(sweep).rows), "lines")
    assert (line["x"], line["y"]) == ([1000, 2000], [0.5, 0.6])
    assert "dotted line is the Pareto front" in client.get(sweep.get_absolute_url()).content.decode()


def test_marks_of_the_front_are_named_in_the_legend_and_not_over_each_other(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [0])
    for run in sweep.runs.all():
        finish(run, {"A": 0.5, "B": 0.5})
    figure = pareto(sweep_board(sweep).rows)
    marks = traces(figure, "markers")
    assert sorted(trace["name"] for trace in marks) == ["gspo", "hacpo"]
    assert len({trace["marker"]["symbol"] for trace in marks}) == 2
    assert figure["layout"]["showlegend"] is True


def test_boards_of_one_name_are_told_apart_by_their_date(client, user):
    client.force_login(user)
    for day in (1, 2):
        sweep = sweep_of(user, ["gspo"], [0])
        type(sweep).objects.filter(pk=sweep.pk).update(created_at=datetime(2026, 3, day, 9, 5, tzinfo=UTC))
        finish(sweep.runs.get(), {"A": 0.5, "B": 0.5})
    page = client.get(reverse("leaderboard:index")).content.decode()
    assert "launched 2026-03-01 09:05 UTC" in page
    assert "launched 2026-03-02 09:05 UTC" in page
