"""The board's numbers, worked out by hand: rows, seeds, differences, marks, and what makes a row of its own."""

import pytest
from django.urls import reverse

from hacrl_web.leaderboard import views
from hacrl_web.leaderboard.board import boards as boards_module
from hacrl_web.leaderboard.board.boards import alone_board, boards, sources, sweep_board
from hacrl_web.leaderboard.board.results import run_results
from hacrl_web.leaderboard.board.rows import rows
from hacrl_web.leaderboard.board.selection import AVERAGE
from hacrl_web.leaderboard.board.table import headline
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.models import Run, State
from hacrl_web.web.statistics import MeanInterval
from tests.support.web.factories import launch_request, make_group, make_user
from tests.support.web.leaderboard_help import by_name, cells_of, finish, finished_sweep, groups_of, sweep_of, table_of

pytestmark = pytest.mark.django_db


def alone(user, request):
    """The board of the runs of this request that were launched one by one."""
    return table_of(alone_board(user, request["group"], request["benchmark"]))


def test_sweep_board_by_hand(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1, 2])
    runs = by_name(sweep)
    finish(runs["gspo", 1], {"A": 0.4, "B": 0.6})  # mean .5
    finish(runs["gspo", 2], {"A": 0.3, "B": 0.5})  # mean .4
    finish(runs["hacpo", 1], {"A": 0.6, "B": 0.8})  # mean .7, +.2
    finish(runs["hacpo", 2], {"A": 0.7, "B": 0.7}, rollouts=3000)  # mean .7, +.3
    table = table_of(sweep)
    hacpo, gspo = table.groups
    assert (hacpo.row.algorithm, gspo.row.algorithm) == ("hacpo", "gspo")
    assert [line.agent for line in hacpo.lines] == ["", "A", "B"]
    assert table.cell(hacpo).score.mean == pytest.approx(0.7)
    assert hacpo.head.start.mean == pytest.approx(0.1)
    assert table.cell(gspo).score.mean == pytest.approx(0.45)
    assert table.cell(gspo).difference is None
    gain = table.cell(hacpo).difference
    assert gain.mean == pytest.approx(0.25)
    # differences .2 and .3: s = .0707107; 12.706 * .0707107 / sqrt(2) = .6353
    assert gain.half_width == pytest.approx(0.6353, abs=1e-4)
    assert table.cell(hacpo).comparison == "unclear"
    assert hacpo.row.seeds == [1, 2]
    costs = [hacpo.value(name) for name in ("rollouts", "tokens", "training_hours")]
    assert costs == [2000, 20_000, pytest.approx(0.01)]  # 36 s
    assert hacpo.value("per_1000") == pytest.approx(0.3)  # (.7 - .1) / 2
    _, a, b = (line.cells[table.last.key] for line in hacpo.lines)
    assert a.score.mean == pytest.approx(0.65)
    assert a.difference.mean == pytest.approx(0.3)  # (.6 - .4, .7 - .3)
    assert b.difference.mean == pytest.approx(0.2)


def test_average_is_over_benchmarks_by_seed(user):
    sweep = sweep_of(user, ["gspo"], [1, 2])
    runs = by_name(sweep)
    finish(runs["gspo", 1], {"A": 0.2, "B": 0.4}, further={"GSM8K": {"A": 0.6, "B": 0.8}})
    finish(runs["gspo", 2], {"A": 0.3, "B": 0.5}, further={"GSM8K": {"A": 0.9, "B": 0.9}})
    table = table_of(sweep)
    own = runs["gspo", 1].spec["data"]["benchmark"]
    assert [column.key for column in table.columns] == [own, "GSM8K", AVERAGE]
    assert "/" in AVERAGE, "no benchmark may have this name: its column would be taken for the average"
    cells = table.groups[0].head.cells
    assert cells[own].by_seed == {1: pytest.approx(0.3), 2: pytest.approx(0.4)}
    assert cells[AVERAGE].by_seed == {1: pytest.approx(0.5), 2: pytest.approx(0.65)}  # (.3 + .7) / 2, (.4 + .9) / 2
    assert [column.key for column in table_of(sweep, on=("GSM8K",)).columns] == ["GSM8K"]


def test_benchmark_that_a_run_was_not_asked_leaves_its_average_empty(user):
    sweep = sweep_of(user, ["gspo"], [1, 2])
    runs = by_name(sweep)
    finish(runs["gspo", 1], {"A": 0.2, "B": 0.4}, further={"GSM8K": {"A": 0.6, "B": 0.8}})
    finish(runs["gspo", 2], {"A": 0.3, "B": 0.5})
    table = table_of(sweep)
    assert sorted(len(group.row.seeds) for group in table.groups) == [1, 1]  # asked other questions: another row
    assert [table.cell(group).score and table.cell(group).score.mean for group in table.groups] == [
        pytest.approx(0.5),
        None,
    ]


def test_chosen_estimate_is_shown_and_older_events_have_their_one(user):
    sweep = sweep_of(user, ["gspo"], [1])
    fields = {"num_samples": 4, "estimates": {"avg@4": 0.4, "pass@4": 0.8, "maj@4": 0.5}}
    finish(sweep.runs.get(), {"A": 0.4, "B": 0.4}, **fields)
    table = table_of(sweep, metric="pass@4")
    assert table.board.metrics == ["avg@k", "maj@4", "pass@4"]
    assert (table.cell(table.groups[0]).score.mean, table.columns[0].measured_by) == (0.8, "pass@4")
    assert table_of(sweep).columns[0].measured_by == "avg@4"
    older = finished_sweep(user, {"gspo": [0.3]})
    assert (table_of(older).columns[0].measured_by, sweep_board(older).metrics) == ("avg@1", ["avg@k"])


def test_only_common_seeds_are_compared_and_the_missing_ones_are_told(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1, 2])
    runs = by_name(sweep)
    finish(runs["gspo", 1], {"A": 0.4, "B": 0.4})
    finish(runs["hacpo", 1], {"A": 0.5, "B": 0.5})
    finish(runs["hacpo", 2], {"A": 0.9, "B": 0.9})
    Run.objects.filter(pk=runs["gspo", 2].pk).update(state=State.FAILED, reason="out of memory")
    table = table_of(sweep)
    found = groups_of(table)
    assert cells_of(table)["hacpo"].score.mean == pytest.approx(0.7)
    assert cells_of(table)["hacpo"].difference == MeanInterval(pytest.approx(0.1), None, 1)
    assert cells_of(table)["hacpo"].comparison == "one seed"
    assert "(one seed in common: no interval)" in headline(table)
    assert (found["gspo"].row.seeds, found["gspo"].row.num_planned) == ([1], 2)
    assert found["gspo"].row.missing == ["1 of 2 seeds failed"]
    assert found["hacpo"].row.missing == []


@pytest.mark.parametrize(
    ("state", "said"),
    [("failed", "failed"), ("stopped", "stopped"), ("running", "to come"), ("completed", "not evaluated")],
)
def test_run_without_a_score_is_counted_and_not_dropped(user, state, said):
    sweep = sweep_of(user, ["hacpo"], [1])
    Run.objects.update(state=state)
    (row,) = sweep_board(sweep).rows
    assert (row.results, row.missing) == ({}, [f"1 of 1 seeds {said}"])
    table = table_of(sweep)
    assert table.cell(table.groups[0]).score is None


def test_retry_takes_the_place_of_the_failed_run(user):
    request = launch_request(user)
    first, second = launch(user, request), launch(user, request)
    Run.objects.filter(pk=first.pk).update(state=State.FAILED)
    finish(second, {"A": 0.5, "B": 0.5})
    (row,) = rows(Run.objects.all())
    assert (row.seeds, row.others, row.num_replaced) == ([1], {}, 1)


def test_second_run_of_a_seed_replaces_the_first(user):
    request = launch_request(user)
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    finish(launch(user, request), {"A": 0.7, "B": 0.7})
    table = alone(user, request)
    assert table.cell(table.groups[0]).score == MeanInterval(pytest.approx(0.7), None, 1)
    assert table.groups[0].row.num_replaced == 1


def test_run_that_went_on_from_a_checkpoint_takes_the_place_of_none(user):
    request = launch_request(user)
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    further = launch(user, request)
    further.start_step = 3
    further.save(update_fields=["start_step"])
    finish(further, {"A": 0.7, "B": 0.7}, start=0.4)
    table = alone(user, request)
    assert sorted(table.cell(group).score.mean for group in table.groups) == pytest.approx([0.5, 0.7])
    assert [group.row.num_replaced for group in table.groups] == [0, 0]
    start_steps = [group.row.distinctions.get("training.start_step") for group in table.groups]
    assert sorted(start_steps, key=str) == [3, None]
    # What it began with was trained already: neither a start nor a gain for its cost.
    untrained = [group.head.start and group.head.start.mean for group in table.groups]
    assert sorted(untrained, key=str) == [0.1, None]
    assert [group.value("per_1000") is None for group in table.groups] == [start is None for start in untrained]
    assert len(table.starts) == 1


def test_run_without_an_evaluation_of_each_agent_has_no_result(user):
    sweep = sweep_of(user, ["gspo"], [1])
    finish(sweep.runs.get(), {"A": 0.4})
    assert run_results(sweep.runs.all()) == {}


def test_evaluation_of_the_highest_attempt_counts(user):
    sweep = sweep_of(user, ["gspo"], [1])
    finish(sweep.runs.get(), {"A": 0.4, "B": 0.4}, attempt=2)
    finish(sweep.runs.get(), {"A": 0.9, "B": 0.9}, attempt=1)
    assert cells_of(table_of(sweep))["gspo"].score.mean == pytest.approx(0.4)


def test_settings_of_the_cross_rollouts_make_rows_but_do_not_part_them_from_gspo(user):
    request = launch_request(user, algorithm={"name": "hacpo", "alpha": 1.0})
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "hacpo", "alpha": 3.0}}), {"A": 0.6, "B": 0.6})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    table = alone(user, request)
    found = [(group.row.algorithm, group.row.distinctions, table.cell(group).difference) for group in table.groups]
    assert found == [
        ("hacpo", {"algorithm.alpha": 3.0}, MeanInterval(pytest.approx(0.3), None, 1)),
        ("hacpo", {"algorithm.alpha": 1.0}, MeanInterval(pytest.approx(0.2), None, 1)),
        ("gspo", {}, None),
    ]


VOID_OR_FREE = [
    {"algorithm": {"name": "hacpo", "cross_gate": "signed", "alpha": 3.0}},  # no effect with this gate
    {"training": {"micro_batch_size": 2, "tokens_per_micro_batch": 8192}},
    {"rollout": {"rollout_batch_size": 4, "importance_cap": 5.0}},  # the cap: no effect without the correction
    {"evaluation": {"eval_interval": 3, "top_p": 0.5}},  # top_p: no effect on greedy answers
]


@pytest.mark.parametrize("changed", VOID_OR_FREE, ids=lambda changed: next(iter(changed)))
def test_settings_that_change_no_result_part_no_rows(user, changed):
    request = launch_request(user, algorithm={"name": "hacpo", "cross_gate": "signed"})
    finish(launch(user, {**request, "seed": 1}), {"A": 0.5, "B": 0.5})
    [(section, values)] = changed.items()
    finish(launch(user, {**request, section: request.get(section, {}) | values, "seed": 2}), {"A": 0.6, "B": 0.6})
    [group] = alone(user, request).groups
    assert (group.row.seeds, group.row.distinctions) == ([1, 2], {})


def test_settings_that_do_not_act_in_another_row_are_no_difference_to_it(user):
    request = launch_request(user, algorithm={"name": "hacpo"})
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "hacpo", "cross_gate": "gamma"}}), {"A": 0.6, "B": 0.6})
    found = [group.row.distinctions for group in alone(user, request).groups]
    assert found == [{"algorithm.cross_gate": "gamma"}, {"algorithm.cross_gate": "hacpo"}]


def test_algorithm_with_a_default_of_its_own_is_paired_with_gspo_at_that_of_gspo(user):
    request = launch_request(user, algorithm={"name": "dr_grpo"})
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    table = alone(user, request)
    assert groups_of(table)["dr_grpo"].row.settings["algorithm.scale_rewards"] == "none"  # GSPO's is group
    assert cells_of(table)["dr_grpo"].difference == MeanInterval(pytest.approx(0.2), None, 1)
    by_batch = launch(user, {**request, "algorithm": {"name": "dr_grpo", "scale_rewards": "batch"}})
    finish(by_batch, {"A": 0.9, "B": 0.9})
    table = alone(user, request)
    by_batch, by_none, _ = table.groups  # best first
    assert by_batch.row.distinctions == {"algorithm.scale_rewards": "batch"}
    assert table.cell(by_batch).difference is None  # no GSPO has that
    assert table.cell(by_none).difference.mean == pytest.approx(0.2)


def test_run_whose_last_evaluation_could_not_be_scored_has_no_result(user):
    sweep = finished_sweep(user, {"gspo": (0.9, 0.4)})
    run = by_name(sweep)["gspo", 1]
    for event in run.events.filter(type="evaluation", step=5):
        event.payload["value"] = None
        event.save()
    [group] = table_of(sweep).groups
    assert (group.row.seeds, group.row.missing) == ([2], ["1 of 2 seeds not evaluated"])
    assert table_of(sweep).cell(group).score.mean == pytest.approx(0.4)  # not the 0.1 before training


def test_headline_names_a_verified_row_before_one_that_a_judge_scored(user):
    sweep = sweep_of(user, ["gspo", "hacpo", "grpo"], [1])
    for name, value, verifier in (("gspo", 0.3, "math/4"), ("hacpo", 0.4, "math/4"), ("grpo", 0.9, "judge/kind@01")):
        finish(by_name(sweep)[name, 1], dict.fromkeys("AB", value), verifier=verifier)
    assert headline(table_of(sweep)).startswith("hacpo (")
    assert " with 0.400 on benchmark" in headline(table_of(sweep))


def test_baseline_can_be_any_algorithm_a_row_or_none(user):
    request = launch_request(user, algorithm={"name": "hacpo", "alpha": 1.0})
    finish(launch(user, request), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "hacpo", "alpha": 3.0}}), {"A": 0.6, "B": 0.6})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    board = alone_board(user, request["group"], request["benchmark"])
    row = next(row for row in board.rows if row.distinctions == {"algorithm.alpha": 1.0})

    def differences(**choice):
        table = table_of(board, **choice)
        return [table.cell(group).difference and table.cell(group).difference.mean for group in table.groups]

    assert differences(baseline=row.id) == [pytest.approx(0.1), None, pytest.approx(-0.2)]
    assert differences(baseline="none") == [None, None, None]
    assert table_of(board, baseline=row.id).baseline == "hacpo alpha=1"


def test_mark_stands_only_where_the_interval_says_so(user):
    finals = {"gspo": (0.3, 0.31, 0.32), "gspox2": (0.6, 0.5, 0.7), "hacpo": (0.61, 0.63, 0.62)}
    table = table_of(finished_sweep(user, finals))
    assert {name: cell.mark for name, cell in cells_of(table).items()} == {
        "hacpo": "may be best",
        "gspox2": "may be best",
        "gspo": "",
    }
    clear = table_of(finished_sweep(user, {"gspo": (0.3, 0.31, 0.32), "hacpo": (0.61, 0.63, 0.62)}))
    assert {name: cell.mark for name, cell in cells_of(clear).items()} == {"hacpo": "best", "gspo": ""}
    # .1 and .2 below in turn: s = .1732 of .2, -.1, .2; nothing is parted from anything
    tied = table_of(finished_sweep(user, {"gspo": (0.3, 0.6, 0.3), "hacpo": (0.5, 0.5, 0.5)}))
    assert {cell.mark for cell in cells_of(tied).values()} == {""}


def test_row_that_lacks_a_seed_takes_it_from_no_other_pair(user):
    # naive_source is .01 ahead of hacpo: .012, .008 and .01 are clear of zero, .012 and .008 alone are not.
    finals = {"hacpo": (0.6, 0.61, 0.62), "naive_source": (0.612, 0.618, 0.63), "gspo": (0.3, 0.31)}
    marks = {name: cell.mark for name, cell in cells_of(table_of(finished_sweep(user, finals))).items()}
    assert marks == {"naive_source": "best", "hacpo": "", "gspo": ""}


def test_nothing_is_best_on_one_common_seed(user):
    sweep = finished_sweep(user, {"gspo": (0.1, 0.1), "hacpo": (0.9,)})
    assert {cell.mark for cell in cells_of(table_of(sweep)).values()} == {""}


def test_rows_are_marked_on_the_seeds_that_each_two_have(user):
    # On the seeds 1 and 2 hacpo is ahead by .3 each time; gspo's third seed is compared with nothing.
    sweep = finished_sweep(user, {"gspo": (0.3, 0.31, 0.99), "hacpo": (0.6, 0.61)})
    assert {name: cell.mark for name, cell in cells_of(table_of(sweep)).items()} == {"hacpo": "best", "gspo": ""}


@pytest.mark.parametrize(
    ("told", "name"),
    [({"verifier": "math/4"}, "verifier of {}"), ({"questions": "b" * 64}, "questions of {}")],
)
def test_another_verifier_or_other_questions_make_another_row(user, told, name):
    request = launch_request(user, algorithm={"name": "gspo"})
    usual = {"verifier": "math/3", "questions": "a" * 64}
    first = launch(user, request)
    finish(first, {"A": 0.3, "B": 0.3}, **usual)
    finish(launch(user, {**request, "seed": 2}), {"A": 0.4, "B": 0.4}, **usual)
    finish(launch(user, {**request, "seed": 3}), {"A": 0.9, "B": 0.9}, **(usual | told))
    table = alone(user, request)
    assert sorted(group.row.seeds for group in table.groups) == [[1, 2], [3]]
    fact = name.format(first.spec["data"]["benchmark"])
    assert all(list(group.row.distinctions) == [fact] for group in table.groups)
    assert table.unlike == [fact]


def test_what_was_verified_otherwise_is_not_compared(user):
    request = launch_request(user)
    finish(launch(user, request), {"A": 0.5, "B": 0.5}, verifier="math/4")
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3}, verifier="math/3")
    assert cells_of(alone(user, request))["hacpo"].difference is None


def test_models_that_have_changed_in_their_folder_are_not_compared(user):
    sweep = finished_sweep(user, {"gspo": (0.3, 0.31), "hacpo": (0.6, 0.61)})
    assert cells_of(table_of(sweep))["hacpo"].mark == "best"
    anew = make_group(user)
    for agent, old in zip(anew.agents.all(), sweep.runs.first().group.agents.all(), strict=True):
        changed = {"location": old.model.location, "facts": {"folder_fingerprint": "another"}}
        LanguageModel.objects.filter(pk=agent.model_id).update(**changed)
    sweep.runs.filter(algorithm="hacpo").update(group=anew)
    hacpo = cells_of(table_of(sweep))["hacpo"]
    assert (hacpo.difference, hacpo.mark) == (None, "")


def test_older_runs_say_that_nothing_was_recorded_and_are_rows_of_their_own(user):
    request = launch_request(user, algorithm={"name": "gspo"})
    finish(launch(user, request), {"A": 0.3, "B": 0.3})
    finish(launch(user, {**request, "seed": 2}), {"A": 0.4, "B": 0.4}, verifier="math/3", questions="a" * 64)
    found = [set(row.facts.values()) & {"not recorded"} for row in rows(Run.objects.all())]
    assert sorted(map(len, found)) == [0, 1]


def test_start_is_one_group_for_rows_that_began_alike(user):
    sweep = finished_sweep(user, {"gspo": (0.3, 0.4), "hacpo": (0.5, 0.6)})
    (start,) = table_of(sweep).starts
    assert [line.agent for line in start.lines] == ["", "A", "B"]
    score = next(iter(start.lines[0].cells.values())).score
    assert score == MeanInterval(pytest.approx(0.1), None, 2)  # the same for all seeds: no interval
    assert start.is_shared


def test_start_of_rows_that_began_otherwise_is_called_their_mean(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1])
    for name, start in (("gspo", 0.1), ("hacpo", 0.3)):
        finish(by_name(sweep)[name, 1], dict.fromkeys("AB", 0.5), start=start)
    (start,) = table_of(sweep).starts
    assert next(iter(start.lines[0].cells.values())).score.mean == pytest.approx(0.2)
    assert not start.is_shared


def test_run_that_only_evaluates_is_named_so_and_compared_with_nothing(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1, 2])
    for (algorithm, _), run in by_name(sweep).items():
        finish(run, {"A": 0.4, "B": 0.4})
        if algorithm == "hacpo":
            Run.objects.filter(pk=run.pk).update(total_steps=0)
    table = table_of(sweep)
    only = groups_of(table)["evaluation only"]
    assert (only.head.start, table.cell(only).difference, table.cell(only).mark) == (None, None, "")


def test_boards_show_only_what_the_user_may_see(user):
    sweep = finished_sweep(user, {"gspo": (0.4,)})
    assert [board.sweep for board in boards(user, sources(user))] == [sweep]
    assert sources(make_user()) == []
    assert len(sources(make_user(is_staff=True))) == 1


def test_sources_are_found_by_the_name_of_sweep_group_or_benchmark(user):
    sweep = finished_sweep(user, {"gspo": (0.4,)}, name="swans")
    finished_sweep(user, {"gspo": (0.4,)}, name="geese")
    run = sweep.runs.get()
    for text in ("swan", run.group.name, run.benchmark.name):
        assert sources(user, text) == [sweep], text
    assert sources(user, "nothing of the kind") == []


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
    gains = {name: cell.difference and cell.difference.mean for name, cell in cells_of(table_of(sweep)).items()}
    assert gains == {"gspo": None} | {name: pytest.approx(0.1 * place) for place, name in enumerate(names) if place}


def test_empty_epsilon_is_the_algorithms_own_and_options_of_sharing_part_no_gspo(user):
    request = launch_request(user)
    sharing = {"advantage": "plain", "modulate_gradient": False, "clip_cross": False, "cross_kl": True}
    sharing |= {"max_sources_per_learner": 1, "on_missing_source": "degrade", "cross_advantage": "source"}
    sharing |= {"peer_quarantine": True, "quarantine_interval": 2, "audit_share": 0.5}
    audited = {**request, "algorithm": {"name": "hacpo", **sharing}, "confirm": ["audit_decides_little"]}
    finish(launch(user, audited), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    written_out = {"name": "gspo", "epsilon": 3e-4, "epsilon_high": 4e-4}
    finish(launch(user, {**request, "algorithm": written_out, "seed": 2}), {"A": 0.3, "B": 0.3})
    table = alone(user, request)
    assert cells_of(table)["hacpo"].difference == MeanInterval(pytest.approx(0.2), None, 1)
    gspo = groups_of(table)["gspo"].row
    assert (gspo.seeds, gspo.distinctions) == ([request["seed"], 2], {})


@pytest.mark.parametrize("changed", [{"scale_rewards": "none"}, {"beta": 0.5}, {"epsilon": 0.1}, {"eos": "strip"}])
def test_settings_that_act_on_gspo_are_not_paired(user, changed):
    request = launch_request(user)
    finish(launch(user, {**request, "algorithm": {"name": "hacpo", **changed}}), {"A": 0.5, "B": 0.5})
    finish(launch(user, {**request, "algorithm": {"name": "gspo"}}), {"A": 0.3, "B": 0.3})
    assert [cell.difference for cell in cells_of(alone(user, request)).values()] == [None, None]


def test_several_sweeps_on_one_board_keep_their_groups_apart(user):
    finals = {"gspo": (0.3, 0.4), "hacpo": (0.5, 0.6)}
    first = finished_sweep(user, finals)
    second = finished_sweep(user, finals, benchmark=first.runs.first().benchmark_id)
    table = table_of(sweep_board(first, second))
    assert len(table.groups) == 4
    names = {first.runs.first().group.name, second.runs.first().group.name}
    assert [set(group.row.distinctions) for group in table.groups] == [{"group"}] * 4
    assert {group.row.distinctions["group"] for group in table.groups} == names
    assert len(table.starts) == 2
    # Each HACPO row has the GSPO of its own group.
    gains = [table.cell(group).difference for group in table.groups if group.row.algorithm == "hacpo"]
    assert [gain.mean for gain in gains] == [pytest.approx(0.2)] * 2
    # Each group is ranked by itself, and has its sentence.
    assert [(section.title, [group.row.algorithm for group in section.groups]) for section in table.sections] == [
        (sweep.runs.first().group.name, ["hacpo", "gspo"]) for sweep in (first, second)
    ]
    assert [len(section.starts) for section in table.sections] == [1, 1]
    assert headline(table).count(": hacpo leads with 0.550 on ") == 2


def test_sweeps_on_two_benchmarks_are_told_apart_by_these_and_not_by_their_settings(user):
    first = finished_sweep(user, {"gspo": (0.3,)})
    other = finished_sweep(user, {"gspo": (0.5,)}, group=first.runs.get().group_id, rollout={"temperature": 0.5})
    distinctions = [row.distinctions for row in sweep_board(first, other).rows]
    assert distinctions == [{"benchmark": sweep.runs.get().benchmark.name} for sweep in (first, other)]


def test_only_the_newest_runs_of_a_very_long_list_are_compared(user, monkeypatch):
    monkeypatch.setattr(boards_module, "MAX_RUNS", 2)
    board = sweep_board(finished_sweep(user, {"gspo": (0.3, 0.4, 0.5)}))
    assert (board.num_runs, board.num_left_out) == (2, 1)


def test_leaderboard_works_out_only_the_boards_of_its_page(user, client, monkeypatch):
    for _ in range(3):
        finished_sweep(user, {"gspo": (0.4,)})
    finish(launch(user, launch_request(user)), {"A": 0.5, "B": 0.5})
    worked_out = []
    real = boards_module.rows
    monkeypatch.setattr(boards_module, "rows", lambda runs: worked_out.append(1) or real(runs))
    monkeypatch.setattr(views, "PAGE_SIZE", 2)
    client.force_login(user)
    for page in (1, 2):
        response = client.get(reverse("leaderboard:index"), {"page": page})
        assert (len(response.context["page"]), response.context["page"].paginator.count) == (2, 4)
        assert len(worked_out) == 2 * page
    assert [board.sweep is None for board in response.context["page"]] == [False, True]


def test_other_rewards_make_another_row_by_one_factor(user):
    request = launch_request(user, algorithm={"name": "gspo"})
    finish(launch(user, request), {"A": 0.3, "B": 0.3})
    finish(launch(user, {**request, "seed": 2, "rewards": {"time_limit_s": 5}}), {"A": 0.4, "B": 0.4})
    paid = {"terms": "boxed = 0.2; length 4 = 0.1", "verifier_weight": 1}
    finish(launch(user, {**request, "seed": 3, "rewards": paid}), {"A": 0.9, "B": 0.9})
    table = alone(user, request)
    assert sorted(group.row.seeds for group in table.groups) == [[request["seed"], 2], [3]]
    assert {tuple(group.row.distinctions.items()) for group in table.groups} == {
        (("rewards.terms", "boxed = 0.2; length 4 = 0.1"),),
        (("rewards.terms", ""),),
    }
