"""Sweeps: which runs a request makes, what is refused and where, and what is done to all runs of one together."""

from __future__ import annotations

import pytest

from hacrl_web.runs.launch.launch import launch_sweep
from hacrl_web.runs.launch.plan import LaunchError, plan_of
from hacrl_web.runs.models import Run, StatusChange, Sweep
from hacrl_web.runs.sweeps.state import state_of
from hacrl_web.runs.sweeps.sweeps import add_seeds, pause_all, resume_all, retry_all, stop_all
from hacrl_web.runs.variants.grid import ablations
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import launch_request, make_member
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db


def sweep_request(user, **changes):
    """A request that is accepted: HACPO and GSPO on two seeds."""
    request = launch_request(user, name="complete")
    del request["algorithm"], request["seed"]
    return {**request, "algorithms": ["hacpo", "gspo"], "seeds": [1, 2], **changes}


def labels(user, **changes) -> list[str]:
    """The variants of a request, in order."""
    planned = plan_of(user, sweep_request(user, seeds=[1], **changes), Sweep).runs
    return [run.variant.label for run in planned]


def refused(user, **changes) -> dict[str | None, str]:
    """{field: message} of a refused request, after checking that nothing was written."""
    with pytest.raises(LaunchError) as caught:
        launch_sweep(user, sweep_request(user, **changes))
    assert not Run.objects.exists()
    assert not Sweep.objects.exists()
    return {error.field: error.message for error in caught.value.errors}


def set_state(run, state: str, **columns) -> None:
    Run.objects.filter(pk=run.pk).update(state=state, **columns)


# Which runs there are


def test_runs_of_one_seed_differ_in_the_section_of_the_algorithm_alone(user):
    removed = list(ablations())
    sweep = launch_sweep(user, sweep_request(user, ablations=removed, grid={"capability_window": [5, 9]}))
    for seed in (1, 2):
        shared = [
            {key: value for key, value in run.spec.items() if key not in ("name", "algorithm")}
            for run in sweep.runs.filter(seed=seed)
        ]
        assert len(shared) > len(removed)
        assert all(one == shared[0] for one in shared)
        assert shared[0]["seed"] == seed


def test_grid_multiplies_only_variants_that_use_its_settings(user):
    found = labels(user, algorithms=["hacpo", "gspo", "naive_source"], grid={"delta": [0.1, 0.2], "alpha": ["1", 3]})
    assert found == [
        "hacpo alpha=1 delta=0.1",
        "hacpo alpha=1 delta=0.2",
        "hacpo alpha=3 delta=0.1",
        "hacpo alpha=3 delta=0.2",
        "gspo",
        "naive_source",
    ]


def test_grid_varies_settings_of_training_rollout_and_choices(user):
    grid = {
        "rollout.temperature": ["1", 0.9],
        "training.learning_rate": [1e-6, 3e-6],
        "cross_gate": ["hacpo", "signed"],
        "modulate_gradient": [True, "false"],
    }
    request = sweep_request(user, algorithms=["hacpo", "gspo"], seeds=[1], grid=grid, training={"steps": 3})
    sweep = launch_sweep(user, request)
    specs = {run.variant: RunSpec.model_validate(run.spec) for run in sweep.runs.all()}
    assert len(specs) == 16 + 4  # GSPO has neither gate nor omega
    gspo = [name for name in specs if name.startswith("gspo")]
    assert "gspo learning_rate=3e-06 temperature=0.9" in gspo
    one = specs["hacpo cross_gate=signed modulate_gradient=false learning_rate=1e-06 temperature=1"]
    assert (one.algorithm.cross_gate, one.algorithm.modulate_gradient) == ("signed", False)
    assert (one.rollout.temperature, one.training.learning_rate, one.training.steps) == (1.0, 1e-6, 3)
    sweep.refresh_from_db()
    assert sweep.request["grid"]["rollout.temperature"] == [1.0, 0.9]
    assert "temperature" not in sweep.request.get("rollout", {})
    assert sweep.request["training"]["steps"] == 3
    added = add_seeds(user, sweep, [2])
    assert {run.variant for run in added} == set(specs)


def test_grid_does_not_multiply_an_ablation_that_removes_its_setting(user):
    found = labels(
        user,
        algorithms=[],
        ablations=["no_exponent", "no_stepwise", "no_clip", "own_only"],
        grid={"alpha": [1, 2], "delta_step": [0.01, 0.02]},
    )
    assert [label for label in found if "no_exponent" in label] == [
        "hacpo no_exponent delta_step=0.01",
        "hacpo no_exponent delta_step=0.02",
    ]
    assert [label for label in found if "no_stepwise" in label] == [
        "hacpo no_stepwise alpha=1",
        "hacpo no_stepwise alpha=2",
    ]
    assert [label for label in found if "no_clip" in label] == ["hacpo no_clip alpha=1", "hacpo no_clip alpha=2"]
    assert [label for label in found if "own_only" in label] == ["hacpo own_only"]


def test_each_ablation_changes_what_it_names_and_nothing_else(user):
    sweep = launch_sweep(user, sweep_request(user, algorithms=["hacpo"], ablations=list(ablations()), seeds=[1]))
    whole = sweep.runs.get(variant="hacpo").spec["algorithm"]
    assert whole["alpha"] == 1.0
    for key, (_, ablation) in ablations().items():
        rule = sweep.runs.get(variant=f"hacpo {key}").spec["algorithm"]
        assert {name: value for name, value in rule.items() if value != whole[name]} == dict(ablation.overrides)


def test_request_is_kept_as_it_was_read(user):
    request = sweep_request(user, seeds=["2", 1], grid={"alpha": ["1", "3.0"]}, algorithm={"beta": "0.5"})
    kept = launch_sweep(user, request).request
    assert kept["seeds"] == [2, 1]
    assert kept["grid"] == {"alpha": [1.0, 3.0]}
    assert kept["algorithm"] == {"beta": 0.5}
    assert kept["training"] == {"steps": 5, "train_batch_size": 4, "mini_batch_size": 4}
    assert (kept["group"], kept["benchmark"]) == (request["group"], request["benchmark"])
    again = launch_sweep(user, kept)
    assert sorted(again.runs.values_list("variant", "seed")) == sorted(
        Sweep.objects.last().runs.values_list("variant", "seed")
    )


def test_name_of_a_run_says_its_variant_and_fits(user):
    sweep = launch_sweep(user, sweep_request(user, name="n" * 120, algorithms=["hacpo"], grid={"alpha": [1, 2]}))
    names = set(sweep.runs.values_list("name", flat=True))
    assert len(names) == 4
    assert {len(name) for name in names} == {120}
    assert any(name.endswith(" hacpo alpha=2 seed 1") for name in names)


def test_points_of_a_grid_that_are_close_together_have_names_of_their_own(user):
    assert labels(user, algorithms=["hacpo"], grid={"alpha": [1, 1.0000001]}) == [
        "hacpo alpha=1",
        "hacpo alpha=1.0000001",
    ]


@pytest.mark.parametrize("odd", ["\x00", "\ud800", "no_such", "n" * 10_000])
def test_code_that_confirms_nothing_is_not_kept(user, odd):
    sweep = launch_sweep(user, sweep_request(user, confirm=["delta_above_half", odd], algorithm={"delta": 0.8}))
    assert sweep.request["confirm"] == ["delta_above_half"]


# What is refused


# What is done to all


def test_stop_all_ends_what_waits_asks_what_runs_and_leaves_what_has_ended(user):
    sweep = launch_sweep(user, sweep_request(user))
    running, done, *waiting = sweep.runs.order_by("created_at")
    set_state(running, "running", attempt=1)
    set_state(done, "completed")
    assert len(stop_all(sweep, "stopped with its sweep by ada")) == 3
    states = dict(sweep.runs.values_list("pk", "state"))
    assert [states[run.pk] for run in waiting] == ["stopped", "stopped"]
    assert (states[running.pk], states[done.pk]) == ("running", "completed")
    running.refresh_from_db()
    assert (running.desired_state, running.desire_reason) == ("stop", "stopped with its sweep by ada")
    changes = StatusChange.objects.filter(to_state="stopped")
    assert set(changes.values_list("reason", flat=True)) == {"stopped with its sweep by ada"}
    assert stop_all(sweep, "again") == []
    assert changes.count() == 2


def test_pause_all_and_resume_all(user):
    sweep = launch_sweep(user, sweep_request(user))
    assert len(pause_all(sweep, "paused by ada")) == 4
    assert set(sweep.runs.values_list("state", flat=True)) == {"paused"}
    assert pause_all(sweep, "again") == []
    assert len(resume_all(sweep, "resumed by ada")) == 4
    assert set(sweep.runs.values_list("state", flat=True)) == {"queued"}
    assert resume_all(sweep, "again") == []


def test_retry_takes_the_place_of_what_failed_once(user):
    sweep = launch_sweep(user, sweep_request(user))
    failed, stopped, *_ = sweep.runs.order_by("created_at")
    set_state(failed, "failed")
    set_state(stopped, "stopped")
    (again,) = retry_all(user, sweep)
    assert (again.retry_of, again.variant, again.seed, again.sweep) == (failed, failed.variant, failed.seed, sweep)
    assert retry_all(user, sweep) == []
    state = state_of(sweep)
    assert again in state.current
    assert failed not in state.current
    assert len(state.current) == 4
    assert len(state.runs) == 5
    assert [run.retry_of for run in retry_all(user, sweep, "stopped")] == [stopped]
    with pytest.raises(LaunchError):
        retry_all(user, sweep, "completed")


def test_added_seeds_need_settings_that_this_version_can_read(user):
    sweep = launch_sweep(user, sweep_request(user))
    run = sweep.runs.filter(algorithm="hacpo").first()
    sweep.runs.filter(algorithm="hacpo").update(spec=run.spec | {"algorithm": run.spec["algorithm"] | {"alpha": 11}})
    with pytest.raises(FieldErrors, match=r"stored by another version.*algorithm\.alpha") as refused:
        add_seeds(user, sweep, [7])
    assert (refused.value.status, refused.value.errors[0].code) == (409, "unreadable_settings")


def test_added_seeds_have_the_settings_of_the_others_even_if_the_group_has_changed(user):
    sweep = launch_sweep(user, sweep_request(user, grid={"alpha": [1, 3]}))
    run = sweep.runs.first()
    run.group.agents.update(learning_rate=0.5)
    made = add_seeds(user, sweep, [2, 7])
    assert sorted((one.variant, one.seed) for one in made) == [("gspo", 7), ("hacpo alpha=1", 7), ("hacpo alpha=3", 7)]
    for one in made:
        before = sweep.runs.get(variant=one.variant, seed=1).spec
        differing = {key for key in before if before[key] != one.spec[key]}
        assert differing == {"name", "seed"}
    assert add_seeds(user, sweep, [7]) == []
    sweep.refresh_from_db()
    assert sweep.request["seeds"] == [1, 2, 7]


@pytest.mark.parametrize(
    ("seeds", "words"),
    [([], "Give a list"), ([-1], "at least 0"), (["x"], "whole number"), (list(range(40)), "at most 60 runs")],
)
def test_seeds_that_cannot_be_added_are_refused_and_nothing_is_written(user, seeds, words):
    sweep = launch_sweep(user, sweep_request(user))
    with pytest.raises(LaunchError) as caught:
        add_seeds(user, sweep, seeds)
    assert {error.field for error in caught.value.errors} == {"seeds"}
    assert words in caught.value.errors[0].message
    assert sweep.runs.count() == 4


def test_nothing_is_launched_again_on_a_benchmark_that_was_deleted(user):
    sweep = launch_sweep(user, sweep_request(user))
    sweep.runs.update(state="failed")
    sweep.runs.first().benchmark.delete()
    for add in (lambda: add_seeds(user, sweep, [9]), lambda: retry_all(user, sweep)):
        with pytest.raises(LaunchError, match="was deleted"):
            add()
    assert sweep.runs.count() == 4


def test_member_adds_runs_to_the_sweep_of_another_and_owns_them(user):
    sweep = launch_sweep(user, sweep_request(user))
    other = make_member(sweep.project)
    made = add_seeds(other, sweep, [9])
    assert {(run.owner, run.project) for run in made} == {(other, sweep.project)}
    viewer = make_member(sweep.project, "viewer")
    with pytest.raises(FieldErrors) as caught:
        add_seeds(viewer, sweep, [10])
    assert caught.value.status == 403
    assert sweep.runs.count() == 4 + len(made)


# How it stands


def test_progress_and_eta_follow_from_the_measured_pace(user):
    sweep = launch_sweep(user, sweep_request(user))  # 5 steps each
    first, second, third, fourth = sweep.runs.order_by("created_at")  # hacpo, gspo, hacpo, gspo
    assert state_of(sweep).eta_s is None
    set_state(first, "completed", step=5, progress={"elapsed_s": 50.0, "eta_s": 0.0})
    set_state(second, "running", step=2, progress={"elapsed_s": 4.0, "eta_s": 6.0})
    set_state(third, "failed", step=1)
    found = state_of(sweep).progress()
    assert found["counts"] == {"queued": 1, "running": 1, "completed": 1, "failed": 1}
    assert (found["steps"], found["total_steps"]) == (8, 5 + 5 + 1 + 5)
    # The running one says 6 s; GSPO makes a step in 4 s / 2, so the waiting one takes 10 s after it.
    assert found["eta_s"] == pytest.approx(16.0)
    set_state(fourth, "paused")
    assert state_of(sweep).eta_s == pytest.approx(6.0)


def test_run_of_before_variants_stands_under_its_algorithm(user):
    sweep = launch_sweep(user, sweep_request(user))
    sweep.runs.update(variant="")
    assert [line.label for line in state_of(sweep).lines] == ["hacpo", "gspo"]
    assert {run.variant for run in add_seeds(user, sweep, [3])} == {"hacpo", "gspo"}
    assert [len([run for run in line.cells if run]) for line in state_of(sweep).lines] == [3, 3]


def test_unnamed_variants_of_one_algorithm_do_not_hide_each_other(user):
    sweep = launch_sweep(user, sweep_request(user, algorithms=["hacpo"], grid={"delta": [0.1, 0.2]}, seeds=[1]))
    sweep.runs.update(variant="", state="failed")
    first, second = sweep.runs.order_by("created_at")
    retry_all(user, sweep)
    state = state_of(sweep)
    assert [line.label for line in state.lines] == ["hacpo", "hacpo (2)"]
    assert [run.retry_of for run in state.current] == [first, second]
