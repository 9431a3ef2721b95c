"""The demo's outcome as JSON: its differences with intervals, and the command's words."""

import json
import subprocess

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from hacrl_web.demo import launch
from hacrl_web.demo.management.commands.demo import algorithms_of, seeds_of
from hacrl_web.demo.outcome import demo_summary, outcome_lines, progress_line
from hacrl_web.runs.models import Run, Sweep
from tests.support.web.factories import make_benchmark, make_group
from tests.support.web.leaderboard_help import by_name, finish, finished_sweep, sweep_of
from workers.contract.demo_recipe import PRETRAINED, PRETRAINED_MODEL, TINY

pytestmark = pytest.mark.django_db
FINALS = {
    "hacpo": (0.68, 0.70, 0.66),
    "gspo": (0.46, 0.50, 0.42),
    "gspox2": (0.53, 0.55, 0.51),
    "naive_source": (0.69, 0.71, 0.67),
}


def test_differences_are_paired_by_seed(user):
    found = demo_summary(finished_sweep(user, FINALS))
    assert json.loads(json.dumps(found)) == found
    gap = found["differences"]["hacpo - gspo"]
    # .22, .20, .24: s = .02; 4.303 * .02 / sqrt(3) = .04969
    assert (gap["mean"], gap["half_width"]) == (pytest.approx(0.22), pytest.approx(0.04969, abs=1e-5))
    assert gap["seeds"] == 3
    assert found["differences"]["hacpo - start"]["mean"] == pytest.approx(0.58)
    assert found["differences"]["hacpo - naive_source"]["mean"] == pytest.approx(-0.01)
    assert found["gain_over_gspo"]["gspox2"] == pytest.approx(0.07)


def test_run_without_a_score_has_its_state_alone(user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [0])
    finish(by_name(sweep)["hacpo", 0], {"A": 0.5, "B": 0.7})
    runs = {run["algorithm"]: run for run in demo_summary(sweep)["runs"]}
    assert runs["hacpo"]["accuracy_final"] == pytest.approx(0.6)
    assert runs["hacpo"]["agents"]["B"] == {"accuracy_start": 0.1, "accuracy_final": 0.7}
    assert set(runs["gspo"]) == {"run", "algorithm", "seed", "state"}


@pytest.mark.parametrize(("words", "seeds"), [("3", [0, 1, 2]), ("1", [0]), ("0,1,5", [0, 1, 5]), ("4,", [4])])
def test_seeds_are_a_count_or_a_list(words, seeds):
    assert seeds_of(words) == seeds


@pytest.mark.parametrize("words", ["", "0", "-1", "a", "1,b", "-1,2", "1.5", ","])
def test_odd_seeds_are_refused_in_words(words):
    with pytest.raises(CommandError, match="--seeds takes a number of seeds"):
        seeds_of(words)


def test_algorithms_are_taken_as_people_write_them():
    assert algorithms_of("hacpo, gspo,gspox2,naive_source") == ["hacpo", "gspo", "gspox2", "naive_source"]


@pytest.fixture
def made_demo(monkeypatch, user):
    """The demo's models and questions are there: rows without files."""
    monkeypatch.setattr(launch, "make_agents", lambda recipe, report, source: None)
    group, benchmark = make_group(user), make_benchmark(user)
    monkeypatch.setattr(launch, "register", lambda owner, recipe, folder: (group, benchmark))
    monkeypatch.setattr("hacrl_web.demo.management.commands.demo.first_user", lambda: user)


def test_command_launches_the_named_algorithms_on_each_seed(made_demo, capsys):
    call_command("demo", seeds="2", algorithms="gspo,naive_source,gspox2,hacpo")
    runs = Run.objects.order_by("created_at").values_list("algorithm", "seed")
    each = ["hacpo", "gspo", "naive_source", "gspox2"]  # the two that answer whether sharing helps come first
    assert list(runs) == [(name, seed) for seed in (0, 1) for name in each]
    assert capsys.readouterr().out.strip() == Run.objects.first().sweep.get_absolute_url()
    assert {run.spec["algorithm"].get("delta") for run in Run.objects.all()} == {0.8, None}


def test_second_demo_takes_the_board_that_is_there_and_adds_what_it_lacks(made_demo, user, capsys):
    def demanded(**options) -> tuple[list[str], str]:
        call_command("demo", algorithms="hacpo,gspo", **options)
        runs = Run.objects.order_by("created_at", "name")
        return [run.name for run in runs], capsys.readouterr().err

    first, _ = demanded()
    for changed, state in ((first, "completed"), (first[:1], "failed")):
        Run.objects.filter(name__in=changed).update(state=state)
        again, said = demanded()
        if state == "completed":
            assert again == first
            assert "has run before" in said
    assert len(again) == 3  # the failed one anew
    Run.objects.update(state="completed")
    more, _ = demanded(seeds="2")
    assert (len(more), Sweep.objects.count()) == (5, 1)
    Run.objects.update(state="completed")
    call_command("demo", algorithms="hacpo,naive_source")  # other variants are another board, told apart by name
    assert sorted(Sweep.objects.values_list("name", flat=True)) == ["Demo", "Demo (2)"]


def test_demo_whose_runs_have_not_ended_continues(made_demo, capsys):
    call_command("demo", algorithms="hacpo,gspo")
    address = capsys.readouterr().out
    call_command("demo", algorithms="hacpo,gspo")
    assert capsys.readouterr() == (address, "Continuing the demo.\n")
    assert Run.objects.count() == 2


def test_pretrained_demo_is_a_board_of_its_own(made_demo, monkeypatch):
    sources = []
    monkeypatch.setattr(launch, "make_agents", lambda recipe, report, source: sources.append((recipe, source)))
    call_command("demo", algorithms="hacpo,gspo")
    call_command("demo", pretrained=PRETRAINED_MODEL)
    assert sources == [(TINY, ""), (PRETRAINED, PRETRAINED_MODEL)]
    assert [sweep.name for sweep in Sweep.objects.order_by("created_at")] == ["Demo", "Pretrained demo"]
    runs = Sweep.objects.get(name="Pretrained demo").runs
    assert set(runs.values_list("algorithm", flat=True)) == set(PRETRAINED.algorithms)
    assert {run.spec["training"]["train_batch_size"] for run in runs.all()} == {8}


def test_command_refuses_an_algorithm_that_there_is_not(made_demo):
    with pytest.raises(CommandError, match="could not be launched: algorithms"):
        call_command("demo", algorithms="hacpo,ppo")
    assert not Run.objects.exists()


def test_result_on_the_terminal_is_two_lines_the_difference_to_gspo_first(user, settings, capsys):
    settings.PUBLIC_URL = "http://demo.example.org"
    sweep = finished_sweep(user, {"gspo": (0.4,), "naive_source": (0.7,), "hacpo": (0.6,)})
    call_command("demo", follow=sweep.pk)
    benchmark = sweep.runs.first().spec["data"]["benchmark"]
    first = "Sharing (hacpo) minus no sharing (gspo): +0.200 (one seed: no interval), held-out accuracy 0.600 and 0.400"
    assert capsys.readouterr().err.splitlines() == [
        f"{first} on {benchmark}.",
        "All rules: naive_source 0.700, hacpo 0.600, gspo 0.400.",
        f"The demo's page: http://demo.example.org{sweep.get_absolute_url()}",
    ]


def test_result_has_an_interval_where_there_are_seeds_and_names_what_has_not_completed(user):
    sweep = finished_sweep(user, FINALS)
    Run.objects.filter(algorithm="gspox2", seed=2).update(state="failed")
    first, second = outcome_lines(sweep)
    assert "+0.220 (± 0.050, 95 %, 3 seeds)" in first
    assert second.endswith("; 1 failed.")


def test_line_of_progress_has_step_accuracy_and_time_left(user):
    sweep = sweep_of(user, ["hacpo", "gspo", "gspox2"], [0])
    runs = by_name(sweep)
    Run.objects.filter(pk=runs["hacpo", 0].pk).update(
        state="running", step=10, total_steps=40, score=0.531, progress={"elapsed_s": 20, "eta_s": 60}
    )
    Run.objects.filter(pk=runs["gspo", 0].pk).update(state="starting", total_steps=40)
    Run.objects.filter(pk=runs["gspox2", 0].pk).update(total_steps=40)
    # Left: 60 s of one, and 40 steps of 2 s of each other: 220 s with two at a time.
    line = "  10 of 120 steps: hacpo 10/40, accuracy 0.531; gspo starts; 1 wait; about 1 min 50 s left"
    assert progress_line(sweep) == line


def test_terminal_is_told_what_is_prepared_and_that_the_runs_are_queued(made_demo, capsys):
    call_command("demo", algorithms="hacpo,gspo")
    said = capsys.readouterr().err.splitlines()
    assert said[0] == TINY.promise
    assert said[-2:] == ["Checking and registering its models and questions.", "Queueing its runs."]


def test_page_hears_how_far_the_demos_models_are(settings, tmp_path, monkeypatch):
    settings.MODELS_DIR = tmp_path
    child = tmp_path / "python"
    child.write_text("#!/bin/sh\necho '{\"percent\": 7}'; echo '{\"percent\": 90}'; echo '{\"made\": true}'\n")
    child.chmod(0o700)
    monkeypatch.setattr(launch.sys, "executable", str(child))
    percentages = []
    assert launch.make_agents(TINY, percentages.append) == tmp_path / "demo"
    assert percentages == [7, 90]
    child.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(subprocess.CalledProcessError):
        launch.make_agents(TINY, percentages.append)
