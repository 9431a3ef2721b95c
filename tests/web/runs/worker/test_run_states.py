"""The state machine of a run: who may change it, what is recorded, and that the first terminal state wins."""

from copy import copy

import pytest

from hacrl_web.runs.models import TERMINAL, TRANSITIONS, Run, RunQuerySet, State, StatusChange, Worker
from tests.support.web import factories
from tests.support.web.racing import racing


def worker(data_folder: str = "here", pid: int = 1) -> Worker:
    return Worker("host-a", pid, 0.0, data_folder)


def changes(run: Run) -> list[tuple[str, str]]:
    return list(run.status_changes.values_list("from_state", "to_state"))


@pytest.mark.django_db
class TestTransitions:
    def test_every_change_is_a_row_with_its_reason(self, make_run):
        run = make_run()
        assert Run.objects.claim(run.pk, worker()) is not None
        run.refresh_from_db()
        assert run.transition_to(State.RUNNING, reason="training", attempt=1)
        assert run.transition_to(State.FAILED, reason="no memory", attempt=1)
        assert changes(run) == [
            ("", "queued"),
            ("queued", "starting"),
            ("starting", "running"),
            ("running", "failed"),
        ]
        assert run.status_changes.last().reason == "no memory"
        assert (run.state, run.reason, run.finished_at is not None) == ("failed", "no memory", True)

    @pytest.mark.parametrize("end", sorted(TERMINAL))
    def test_terminal_state_is_never_left(self, make_run, end):
        run = make_run()
        Run.objects.filter(pk=run.pk).update(state=end)
        assert TRANSITIONS[end] == frozenset()
        for state in State:
            assert not run.transition_to(state, reason="no")
        assert changes(run) == [("", "queued")]

    def test_queued_run_cannot_be_completed_without_a_claim(self, make_run):
        run = make_run()
        assert not run.transition_to(State.COMPLETED, reason="")
        assert not run.transition_to(State.RUNNING, reason="")
        assert run.state == State.QUEUED

    def test_write_of_an_earlier_attempt_is_refused(self, make_run):
        run = make_run()
        Run.objects.claim(run.pk, worker())
        assert run.transition_to(State.LOST, reason="silent", attempt=1)
        assert run.transition_to(State.QUEUED, reason="silent", attempt=1)
        assert Run.objects.claim(run.pk, worker()).attempt == 2
        assert not run.transition_to(State.COMPLETED, reason="", attempt=1)
        assert not Run.objects.held_by(run.pk, 1).exists()
        assert Run.objects.held_by(run.pk, 2).exists()

    @pytest.mark.parametrize("new", ["queued", "lost", "failed", "completed"])
    def test_only_a_run_with_a_trainer_has_an_eta(self, make_run, new):
        run = make_run()
        Run.objects.claim(run.pk, worker())
        Run.objects.filter(pk=run.pk).update(progress={"eta_s": 60.0, "elapsed_s": 5.0})
        run.transition_to(State.RUNNING, reason="", attempt=1)
        assert run.progress["eta_s"] == 60.0
        run.transition_to(new, reason="", attempt=1)
        assert run.progress == {"elapsed_s": 5.0}

    def test_deleted_run_cannot_change(self, make_run):
        run = make_run()
        Run.objects.all().delete()
        assert not run.transition_to(State.STOPPED, reason="")


@pytest.mark.django_db
class TestClaim:
    def test_claim_raises_the_attempt_and_names_the_worker(self, make_run):
        run = make_run()
        claimed = Run.objects.claim(run.pk, worker(pid=77))
        assert (claimed.attempt, claimed.state, claimed.worker_pid) == (1, "starting", 77)
        assert claimed.heartbeat_at is not None
        assert claimed.started_at == claimed.heartbeat_at

    def test_run_that_has_begun_waits_for_its_data_folder(self, make_run):
        run = make_run()
        Run.objects.claim(run.pk, worker("here"))
        run.requeue(reason="deploy", attempt=1, is_interruption=False)
        assert Run.objects.claim(run.pk, worker("elsewhere")) is None
        assert Run.objects.claim(run.pk, worker("here")).attempt == 2

    def test_queue_is_by_priority_then_age(self, make_run):
        first, second, urgent = make_run(), make_run(), make_run()
        Run.objects.filter(pk=urgent.pk).update(priority=1)
        assert list(Run.objects.in_queue()) == [urgent, first, second]


@pytest.mark.django_db
class TestStop:
    def test_queued_run_stops_at_once_and_cannot_be_claimed(self, make_run):
        run = make_run()
        run.request_stop()
        assert (run.state, run.desired_state) == ("stopped", "stop")
        assert Run.objects.claim(run.pk, worker()) is None

    def test_held_run_is_only_asked_to_stop(self, make_run):
        run = make_run()
        Run.objects.claim(run.pk, worker())
        run.request_stop()
        assert (run.state, run.desired_state) == ("starting", "stop")

    def test_stopping_twice_or_after_the_end_changes_nothing(self, make_run):
        run = make_run()
        run.request_stop()
        run.request_stop()
        assert changes(run) == [("", "queued"), ("queued", "stopped")]
        done = make_run()
        Run.objects.claim(done.pk, worker())
        done.transition_to(State.COMPLETED, reason="", attempt=1)
        done.request_stop()
        assert (done.state, done.desired_state) == ("completed", "run")


@pytest.mark.django_db
class TestRequeue:
    def test_third_interruption_requeues_and_fourth_fails(self, make_run):
        run = make_run()
        for attempt in (1, 2, 3):
            Run.objects.claim(run.pk, worker())
            run.refresh_from_db()
            assert run.requeue(reason="died", attempt=attempt, is_interruption=True)
            assert (run.state, run.interruptions) == ("queued", attempt)
        Run.objects.claim(run.pk, worker())
        run.refresh_from_db()
        assert run.requeue(reason="died", attempt=4, is_interruption=True)
        assert run.state == State.FAILED
        assert run.reason == "interrupted 4 times, most recently: died"

    def test_deploy_is_not_counted(self, make_run):
        run = make_run()
        for attempt in range(1, 7):
            Run.objects.claim(run.pk, worker())
            run.requeue(reason="deploy", attempt=attempt, is_interruption=False)
        assert (run.state, run.interruptions) == ("queued", 0)

    @pytest.mark.parametrize("is_interruption", [True, False])
    def test_run_that_is_to_stop_is_stopped_instead_of_queued_for_ever(self, make_run, is_interruption):
        """The request came after the supervisor's last read; `run` is what the supervisor remembers."""
        run = make_run()
        Run.objects.claim(run.pk, worker())
        run.refresh_from_db()
        Run.objects.get(pk=run.pk).request_stop("stopped by ada")
        assert run.requeue(reason="deploy", attempt=1, is_interruption=is_interruption)
        assert (run.state, run.reason, run.finished_at is not None) == ("stopped", "stopped by ada", True)

    def test_wish_that_comes_between_look_and_write_is_seen(self, make_run, monkeypatch):
        run = make_run()
        Run.objects.claim(run.pk, worker())
        real, writes = RunQuerySet.update, []

        def update(rows, **columns):
            if columns.get("state") == State.QUEUED and not writes:
                writes.append(1)
                Run.objects.get(pk=run.pk).request_stop()  # the run is still held: only the desired state is written
            return real(rows, **columns)

        monkeypatch.setattr(RunQuerySet, "update", update)
        assert run.requeue(reason="busy", attempt=1, is_interruption=False)
        assert writes
        assert run.state == "stopped"


@pytest.mark.django_db(transaction=True)
def test_eight_claims_at_once_give_one_attempt():
    run = factories.make_run()
    claimed = []
    with racing(8) as race:
        race(*[lambda: claimed.append(Run.objects.claim(run.pk, worker())) for _ in range(8)])
    assert sum(c is not None for c in claimed) == 1
    run.refresh_from_db()
    assert run.attempt == 1
    assert StatusChange.objects.filter(run=run, to_state="starting").count() == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("races", [250, pytest.param(1000, marks=pytest.mark.full)])
def test_stop_against_finish_leaves_one_terminal_state_in_each_race(races):
    run = factories.make_run()
    common = {name: getattr(run, name) for name in ("owner", "project", "name", "spec", "algorithm", "seed")}
    held = Run.objects.bulk_create([Run(**common, state=State.RUNNING, attempt=1) for _ in range(races)])
    winners = set()
    with racing(3) as race:
        for run in held:
            seen = [copy(run) for _ in range(3)]
            race(
                lambda seen=seen: seen[0].transition_to(State.COMPLETED, reason="", attempt=1),
                lambda seen=seen: seen[1].transition_to(State.STOPPED, reason="", attempt=1),
                lambda seen=seen: seen[2].request_stop(),
            )
            ends = StatusChange.objects.filter(run=run, to_state__in=TERMINAL).values_list("to_state", flat=True)
            run.refresh_from_db()
            assert [run.state] == list(ends)
            winners.add(run.state)
    assert winners == {"completed", "stopped"}  # or these were no races


@pytest.mark.django_db(transaction=True)
def test_claim_pause_and_stop_at_once_leave_a_run_that_goes_the_users_way():
    run = factories.make_run()
    common = {name: getattr(run, name) for name in ("owner", "name", "spec", "algorithm", "seed")}
    with racing(3) as race:
        for _ in range(60):
            run = Run.objects.create(**common)
            seen = [Run.objects.get(pk=run.pk) for _ in range(3)]
            race(
                lambda seen=seen: Run.objects.claim(seen[0].pk, worker()),
                lambda seen=seen: seen[1].request_pause("ada"),
                lambda seen=seen: seen[2].request_stop(),
            )
            run.refresh_from_db()
            assert run.desired_state == "stop"
            # Held: its supervisor ends it. Otherwise it has ended, and no worker can claim it.
            assert run.state in ({"starting"} if run.attempt else {"stopped"})
