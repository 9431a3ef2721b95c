"""A sweep that searches: its trials follow one another, whichever dispatcher is killed between."""

import json

import pytest

from hacrl_web.accounts.models import Membership
from hacrl_web.runs.archive.deletion import delete_sweep
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.launch.launch import launch_sweep, queue_draft
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run, State, Sweep, TelemetryEvent, Trial
from hacrl_web.runs.sweeps import advance as module
from hacrl_web.runs.sweeps.advance import SearchAdvancer, next_point, start_trial
from hacrl_web.runs.sweeps.search_view import best_trial, search_view
from hacrl_web.runs.sweeps.sweeps import add_seeds, pause_all, resume_all, retry_all, stop_all
from hacrl_web.runs.variants.search_settings import stored_search
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import launch_request, make_member, make_user, sweep_form
from tests.web.client.test_client import hacrl as hacrl  # its fixture

pytestmark = pytest.mark.django_db

RATE = "training.learning_rate"


def search_request(user, **changes):
    """A random search of four trials, two at once, over a rate and a choice."""
    request = launch_request(user, name="complete")
    del request["algorithm"], request["seed"]
    search = {
        "method": "random",
        "trials": 4,
        "at_once": 2,
        "parameters": {RATE: "1e-6..1e-4 log", "alpha": [1, 2]},
    } | changes
    return {**request, "algorithms": ["hacpo"], "seeds": [1], "search": search}


@pytest.fixture
def sweep(user):
    return launch_sweep(user, search_request(user))


def tick(sweep) -> Sweep:
    SearchAdvancer().tick()
    return Sweep.objects.get(pk=sweep.pk)


def evaluate(run: Run, step: int, **by_agent: float) -> None:
    for agent, value in by_agent.items():
        seq = Run.objects.get(pk=run.pk).last_seq + 1
        payload = {"metric": "accuracy", "benchmark": "", "value": value}
        columns = {"type": "evaluation", "step": step, "agent": agent, "payload": payload, "time": 0.0}
        TelemetryEvent.objects.create(run=run, seq=seq, attempt=1, **columns)
        Run.objects.filter(pk=run.pk).update(last_seq=seq)


def end(trial: Trial, state: str = State.COMPLETED, value: float | None = None) -> None:
    if value is not None:
        evaluate(trial.run, 5, A=value, B=value)
    Run.objects.filter(pk=trial.run_id).update(state=state, reason="why it ended")


def open_trials(sweep) -> list[Trial]:
    return list(sweep.trials.filter(state="running").select_related("run"))


def states(sweep) -> list[str]:
    return list(sweep.trials.values_list("state", flat=True))


def test_trials_are_ordinary_runs_of_the_sweep_at_most_k_at_a_time(user, sweep):
    assert sweep.search_state == "searching"
    assert not sweep.runs.exists()  # the request starts none
    tick(sweep)
    tick(sweep)
    first, second = open_trials(sweep)
    assert [run.variant for run in sweep.runs.order_by("created_at")] == ["trial 0", "trial 1"]
    assert (first.run.state, first.run.owner, first.run.project) == (State.QUEUED, user, sweep.project)
    assert first.run.spec["training"]["learning_rate"] == first.parameters[RATE]
    assert first.run.spec["algorithm"]["alpha"] == first.parameters["alpha"]
    assert first.run.spec["training"]["steps"] == 5
    end(second, value=0.5)
    tick(sweep)
    assert [trial.number for trial in open_trials(sweep)] == [0, 2]


def test_without_a_number_the_next_trial_starts_once_none_waits_for_a_worker(user):
    sweep = launch_sweep(user, search_request(user, at_once="", trials=4))
    assert sweep.request["search"]["at_once"] is None
    for number in (1, 2, 3):
        sweep = tick(tick(sweep))
        assert sweep.trials.count() == number
        Run.objects.filter(sweep=sweep, state=State.QUEUED).update(state=State.STARTING, attempt=1)  # one is claimed
    # Three are with workers: the fourth waits, and no further one is queued behind it.
    settings = stored_search(tick(sweep).request)
    assert (sweep.trials.count(), module.has_place(settings, sweep)) == (4, False)


def test_search_finishes_after_its_last_trial_with_the_best_marked(sweep):
    values = iter([0.25, 0.75, 0.5, 0.75])
    for _ in range(6):
        sweep = tick(sweep)
        for trial in open_trials(sweep):
            end(trial, value=next(values))
    assert (sweep.search_state, states(sweep)) == ("finished", ["completed"] * 4)
    assert list(sweep.trials.values_list("value", flat=True)) == [0.25, 0.75, 0.5, 0.75]
    assert best_trial(list(sweep.trials.all())).number == 1  # of equal ones the first
    assert tick(sweep).runs.count() == 4


def test_objective_is_the_last_evaluation_as_mean_or_of_one_agent(user):
    mean = launch_sweep(user, search_request(user, at_once=1))
    agent = launch_sweep(user, search_request(user, at_once=1, agent="B"))
    SearchAdvancer().tick()
    for sweep in (mean, agent):
        (trial,) = open_trials(sweep)
        evaluate(trial.run, 3, A=1.0, B=1.0)
        evaluate(trial.run, 5, A=0.25, B=0.75)
        end(trial)
    SearchAdvancer().tick()
    # The mean of 0.25 and 0.75 is 0.5; B alone has 0.75.
    assert (mean.trials.get(number=0).value, agent.trials.get(number=0).value) == (0.5, 0.75)


def test_kill_between_trial_and_run_leaves_neither_and_the_next_tick_makes_the_same(sweep, monkeypatch):
    def killed(**columns):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module.Trial.objects, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            SearchAdvancer().tick()
    assert (Run.objects.count(), Trial.objects.count()) == (0, 0)
    before = next_point(stored_search(sweep.request), [])
    tick(sweep)
    assert sweep.trials.get(number=0).parameters == before
    assert (Run.objects.count(), Trial.objects.count()) == (2, 2)


def test_of_two_dispatchers_one_starts_each_trial(sweep):
    settings = stored_search(sweep.request)
    point = next_point(settings, [])
    assert start_trial(sweep, settings, 0, point)
    assert not start_trial(sweep, settings, 0, point)  # the second had asked before the first wrote
    assert start_trial(sweep, settings, 1, next_point(settings, list(sweep.trials.all())))
    assert not start_trial(sweep, settings, 2, point)  # two are under way
    assert Run.objects.count() == 2


def test_failed_and_stopped_trials_count_as_such_and_the_search_continues(sweep):
    tick(sweep)
    first, second = open_trials(sweep)
    end(first, State.FAILED)
    end(second, State.STOPPED)
    tick(sweep)
    assert states(sweep) == ["failed", "stopped", "running", "running"]
    assert sweep.trials.get(number=0).reason == "why it ended"


def test_completed_trial_without_evaluation_is_failed(sweep):
    tick(sweep)
    end(open_trials(sweep)[0])
    tick(sweep)
    trial = sweep.trials.get(number=0)
    assert (trial.state, trial.reason) == ("failed", "it has no evaluation after its training")


def test_search_ends_after_five_failures_in_a_row(user):
    sweep = launch_sweep(user, search_request(user, trials=20))
    for _ in range(6):
        sweep = tick(sweep)
        for trial in open_trials(sweep):
            end(trial, State.FAILED)
    assert (sweep.search_state, sweep.trials.count()) == ("stopped", 6)
    assert sweep.search_reason == "5 trials failed one after the other, most recently: why it ended"


def test_values_that_are_refused_together_fail_their_trial_alone(user):
    parameters = {"training.train_batch_size": [4, 8], "training.mini_batch_size": [2, 4]}
    sweep = launch_sweep(user, search_request(user, trials=2, parameters=parameters))
    Sweep.objects.filter(pk=sweep.pk).update(
        request={**sweep.request, "search": {**sweep.request["search"], "trials": 3, "parameters": {
            "training.train_batch_size": [4, 6], "training.mini_batch_size": [4, 6]}}}
    )  # fmt: skip
    for _ in range(6):
        sweep = tick(sweep)
        for trial in open_trials(sweep):
            end(trial, value=0.5)
    assert sweep.search_state == "finished"
    for trial in sweep.trials.all():
        values = trial.parameters
        fits = values["training.train_batch_size"] % values["training.mini_batch_size"] == 0
        assert (trial.state, trial.run is not None) == (("completed", True) if fits else ("failed", False))
        assert fits or trial.reason.startswith("refused: ")
    assert "failed" in states(sweep)


def test_stop_pause_and_resume_act_on_the_search_too(sweep):
    tick(sweep)
    pause_all(sweep, "paused by ada")
    assert (sweep.search_state, sweep.is_searching) == ("paused", True)
    end(open_trials(sweep)[0], value=0.5)
    assert tick(sweep).trials.count() == 2
    resume_all(sweep, "resumed by ada")
    assert tick(sweep).trials.count() == 3
    with pytest.raises(FieldErrors) as refused:
        delete_sweep(sweep.owner, sweep)
    assert refused.value.status == 409
    stop_all(sweep, "stopped by ada")
    sweep = tick(sweep)
    assert (sweep.search_state, sweep.search_reason) == ("stopped", "stopped by ada")
    assert sorted(states(sweep)) == ["completed", "stopped", "stopped"]
    delete_sweep(sweep.owner, sweep)
    assert not Trial.objects.exists()


def test_search_of_somebody_who_left_the_project_stops(user, sweep):
    member = make_member(sweep.project)
    other = launch_sweep(member, {**sweep.request, "name": "swan"})
    Membership.objects.filter(user=member).delete()
    SearchAdvancer().tick()
    other.refresh_from_db()
    assert (other.search_state, other.trials.count()) == ("stopped", 0)
    assert other.search_reason == "You are not in the project that this belongs to."
    assert sweep.trials.count() == 2


def test_search_of_a_viewer_or_a_closed_account_stops(sweep):
    member = make_member(sweep.project)
    other = launch_sweep(member, {**sweep.request, "name": "swan"})
    Membership.objects.filter(user=member).update(role="viewer")
    assert "viewer" in tick(other).search_reason
    Sweep.objects.filter(pk=other.pk).update(search_state="searching")
    member.is_active = False
    member.save()
    assert tick(other).search_reason.endswith("may no longer launch runs.")
    assert not other.runs.exists()


def test_retry_takes_the_place_of_its_trial(user, sweep):
    tick(sweep)
    first = open_trials(sweep)[0]
    end(first, State.FAILED)
    sweep = tick(sweep)
    assert states(sweep)[0] == "failed"
    new = retry(user, Run.objects.get(pk=first.run_id))
    trial = sweep.trials.get(number=0)
    assert (trial.run, trial.state) == (new, "running")
    evaluate(new, 5, A=0.5, B=0.5)
    Run.objects.filter(pk=new.pk).update(state=State.COMPLETED)
    tick(sweep)
    trial.refresh_from_db()
    assert (trial.state, trial.value, trial.reason) == ("completed", 0.5, "")


def test_pruned_runs_are_not_retried_with_the_stopped_ones(user, sweep):
    tick(sweep)
    first, second = open_trials(sweep)
    end(first, State.STOPPED)
    end(second, State.STOPPED)
    Trial.objects.filter(pk=first.pk).update(pruned_step=2, scores={"2": 0.1})
    sweep = tick(sweep)
    assert states(sweep)[:2] == ["pruned", "stopped"]
    assert [run.retry_of_id for run in retry_all(user, sweep, State.STOPPED)] == [second.run_id]


def test_search_takes_no_further_seeds(user, sweep):
    tick(sweep)
    with pytest.raises(LaunchError) as refused:
        add_seeds(user, sweep, [7])
    assert refused.value.status == 409


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"algorithms": ["hacpo", "gspo"]}, "algorithms"),
        ({"ablations": ["no_omega"]}, "algorithms"),
        ({"seeds": [1, 2]}, "seeds"),
        ({"grid": {"delta": [0.1, 0.2]}}, "grid.delta"),
        ({"search": {"method": "random", "trials": 2, "parameters": {"no_such": "1..2"}}}, "search.parameters.no_such"),
        ({"search": {"method": "random", "trials": 2, "agent": "Z", "parameters": {"alpha": "1..2"}}}, "search.agent"),
        ({"search": {"method": "random", "pruner": "median", "parameters": {"alpha": "1..2"}}}, "search.pruner"),
        ({"search": "random"}, "search"),
        # 4 prompts cannot be split into mini-batches of 3: the end of a range is checked before any trial.
        (
            {"search": {"method": "random", "trials": 2, "parameters": {"training.mini_batch_size": "2..3"}}},
            "search.parameters.training.mini_batch_size",
        ),
    ],
)
def test_search_that_cannot_run_is_refused_beside_its_field(user, changes, field):
    with pytest.raises(LaunchError) as refused:
        launch_sweep(user, search_request(user) | changes)
    assert [error.field for error in refused.value.errors][:1] in ([field], ["training"])
    assert not Sweep.objects.exists()


def test_draft_of_a_search_is_queued_as_a_search(user):
    draft = launch_sweep(user, search_request(user) | {"draft": True})
    assert (draft.is_draft, draft.search_state, draft.trials.count()) == (True, "", 0)
    assert draft.request["search"]["parameters"] == {"alpha": [1.0, 2.0], RATE: "1e-06..0.0001 log"}
    SearchAdvancer().tick()
    assert not Trial.objects.exists()

    queue_draft(user, draft)
    assert tick(draft).trials.count() == 2


def test_page_and_api_show_the_trials_to_members_alone(client, user, sweep):
    tick(sweep)
    end(open_trials(sweep)[0], value=0.625)
    sweep = tick(sweep)
    client.force_login(user)
    page = client.get(sweep.get_absolute_url()).content.decode()
    assert "Best so far" in page
    assert "0.625" in page
    assert "Add seeds" not in page  # a search has one
    file = client.get(f"/share/file?of=/sweeps/{sweep.pk}").content.decode()  # for people without an account
    assert "Best so far: <span>trial 0</span>" in file
    assert file.count('<svg class="chart-picture"') == 3  # over trials, and of each setting
    assert str(sweep.trials.get(number=0).run_id) not in file
    url = f"/sweeps/{sweep.pk}/trials"
    assert client.get(url).status_code == 200
    assert client.get(url, {"seen": search_view(sweep).version}).status_code == 204
    answer = client.get(f"/api/v1/sweeps/{sweep.pk}").json()
    assert answer["search"]["best"] == 0
    assert [trial["state"] for trial in answer["search"]["trials"]] == ["completed", "running", "running"]
    assert answer["search"]["trials"][0]["run"] == str(sweep.trials.get(number=0).run_id)
    assert not answer["is_finished"]
    client.force_login(make_user())
    assert client.get(url).status_code == 404
    assert client.get(f"/api/v1/sweeps/{sweep.pk}").status_code == 404


def test_form_sends_a_search_and_shows_its_errors_beside_the_ranges(client, user):
    client.force_login(user)
    form = sweep_form(user, algorithms="gspo", seeds="1") | {
        "compare": "search",
        "search.method": "random",
        "search.trials": "3",
        "search.at_once": "1",
        "search.seed": "9",
        "search.pruner": "none",
        "search.agent": "",
        "grid.alpha": "1..3",
    }
    bad = client.post("/runs/new", form | {"grid.training.learning_rate": "1e-4..1e-6"})
    assert bad.status_code == 422
    page = bad.content.decode()
    assert "A range begins with its lower number. You gave 1e-4..1e-6." in page
    assert 'value="1e-4..1e-6"' in page
    grid = client.post("/runs/new", form | {"compare": "1", "algorithms": "hacpo"})
    assert "A range needs a search" in grid.content.decode()
    done = client.post("/runs/new", form | {"grid.training.learning_rate": "1e-6..1e-4 log"})
    assert done.status_code == 302, done.content.decode()[:2000]
    sweep = Sweep.objects.get()
    # Of the run's algorithm and seed: those of a sweep are not read.
    assert (sweep.request["algorithms"], sweep.request["seeds"]) == ([form["algorithm.name"]], [int(form["seed"])])
    assert sweep.request["search"] == {
        "method": "random",
        "trials": 3,
        "at_once": 1,
        "seed": 9,
        "pruner": "none",
        "agent": "",
        "parameters": {"alpha": "1..3", RATE: "1e-06..0.0001 log"},
    }


def test_estimate_is_for_all_trials(client, user):
    client.force_login(user)
    cost = client.post("/api/v1/sweeps/estimate", search_request(user), content_type="application/json").json()
    assert cost["runs"] == 4


def optuna_request(user, **changes):
    request = search_request(user, method="optuna", pruner="median", trials=8, at_once=1, **changes)
    return request | {"evaluation": {"eval_interval": 2}}


def finish_five(sweep) -> None:
    """Five trials that complete, each with 0.5 at step 2 and 0.6 at its end."""
    for _ in range(5):
        tick(sweep)
        (trial,) = open_trials(sweep)
        evaluate(trial.run, 2, A=0.5, B=0.5)
        evaluate(trial.run, 5, A=0.6, B=0.6)
        end(trial)
    tick(sweep)


def test_pruned_trial_is_stopped_with_its_reason_and_counts_as_pruned(user, client):
    sweep = launch_sweep(user, optuna_request(user))
    finish_five(sweep)
    (trial,) = open_trials(sweep)
    Run.objects.filter(pk=trial.run_id).update(state=State.RUNNING, attempt=1)
    evaluate(trial.run, 0, A=0.0, B=0.0)  # before its training: all trials are alike
    advancer = SearchAdvancer()
    advancer.tick()
    assert Run.objects.get(pk=trial.run_id).desired_state == "run"
    evaluate(trial.run, 5, A=0.0, B=0.0)  # at its last step it ends by itself
    advancer.tick()
    assert Run.objects.get(pk=trial.run_id).desired_state == "run"
    TelemetryEvent.objects.filter(run=trial.run, step=5).delete()
    evaluate(trial.run, 2, A=0.25, B=0.5)
    advancer.tick()
    run = Run.objects.get(pk=trial.run_id)
    reason = "pruned at step 2: held-out accuracy 0.375 is below the median of earlier trials at that step"
    assert (run.desired_state, run.desire_reason) == ("stop", reason)
    run.transition_to(State.STOPPED, reason=run.desire_reason)
    tick(sweep)
    trial.refresh_from_db()
    assert (trial.state, trial.value, trial.pruned_step, trial.reason) == ("pruned", 0.375, 2, reason)
    assert sweep.trials.filter(state="running").count() == 1  # the next has its place
    client.force_login(user)
    search = client.get(f"/api/v1/sweeps/{sweep.pk}").json()["search"]
    assert search["counts"] == {"running": 1, "completed": 5, "pruned": 1}
    assert search["trials"][5]["pruned_step"] == 2
    assert "pruned" in client.get(sweep.get_absolute_url()).content.decode()


def test_pruning_that_was_decided_before_a_kill_is_carried_out_after_it(user):
    sweep = launch_sweep(user, optuna_request(user))
    tick(sweep)
    (trial,) = open_trials(sweep)
    Trial.objects.filter(pk=trial.pk).update(pruned_step=2, reason="pruned at step 2: why", scores={"2": 0.1})
    tick(sweep)
    run = Run.objects.get(pk=trial.run_id)
    assert (run.state, run.reason) == (State.STOPPED, "pruned at step 2: why")  # it still waited in the queue
    tick(sweep)
    assert states(sweep) == ["pruned", "running"]


def test_optuna_continues_after_a_restart_as_if_there_was_none(user):
    """Two equal searches; the dispatcher of the second is a new one at each tick, that of the first is not."""
    points = []
    for ticker in (SearchAdvancer(), None):
        sweep = launch_sweep(user, optuna_request(user))
        for number in range(8):
            (ticker or SearchAdvancer()).tick()
            (trial,) = open_trials(sweep)
            end(trial, value=0.1 * number)
        SearchAdvancer().tick()
        points.append(list(sweep.trials.values_list("parameters", flat=True)))
    assert points[0] == points[1]
    assert len({str(point) for point in points[0]}) == 8


def test_terminal_launches_a_search_and_shows_its_trials(hacrl, user, tmp_path):
    request = search_request(user)
    request["search"] = {"method": "random", "trials": 3, "at_once": 1, "parameters": {"alpha": "1..3"}}
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(request))
    assert hacrl("launch", str(file)).startswith("Sweep ")
    sweep = Sweep.objects.get()
    assert sweep.request["search"]["parameters"] == {"alpha": "1..3"}
    tick(sweep)
    end(open_trials(sweep)[0], value=0.625)
    tick(sweep)
    text = hacrl("sweeps", "show", str(sweep.pk))
    assert "searching; 1 completed, 1 queued" in text  # the second trial waits for a worker
    assert "0 best" in text
    assert "0.625" in text
