"""Pause, resume, drain and the watchdog: how a supervisor handles requests and a trainer that hangs."""

import pytest

from hacrl_web.runs.models import Desire, Drain, Host, Run, State, Worker
from hacrl_web.runs.worker import supervisor, watchdog
from hacrl_web.runs.worker.hosts import host_name
from hacrl_web.runs.worker.tasks import supervise
from hacrl_web.runs.worker.watchdog import LOADING_S, STALL_FLOOR_S, Watchdog
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run
from tests.web.runs.worker.test_supervisor import assert_nothing_left, changes, is_running, processes_of, trained

LONG = {"steps": 100_000, "train_batch_size": 4, "mini_batch_size": 4}


def has_step(run: Run, step: int) -> bool:
    return run.events.filter(type="progress", step=step).exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("fake_trainer")
class TestPause:
    def test_pause_ends_the_trainer_with_a_checkpoint_and_resume_goes_on_from_it(self):
        run = make_run(training={**LONG, "steps": 400})
        assert trained(
            run, lambda: has_step(run, 3), lambda: Run.objects.get(pk=run.pk).request_pause("paused by ada: lunch")
        )
        assert (run.state, run.reason, run.interruptions) == ("paused", "paused by ada: lunch", 0)
        assert "eta_s" not in run.progress
        assert processes_of(run) == []
        paused_at = run.events.filter(type="checkpoint").last().step
        assert 3 <= paused_at < 400
        assert not supervise(run.pk)  # an old message
        run.request_resume("resumed by ada")
        assert (run.state, run.desired_state, run.reason) == ("queued", "run", "resumed by ada")
        assert trained(run)
        assert (run.state, run.attempt, run.step, run.interruptions) == ("completed", 2, 400, 0)
        assert list(run.events.filter(type="started").values_list("step", flat=True)) == [0, paused_at]
        assert changes(run) == [
            *("queued", "starting", "running", "paused"),
            *("queued", "starting", "running", "completed"),
        ]
        assert_nothing_left(run)

    def test_pause_taken_back_before_it_is_reached_is_no_interruption(self, monkeypatch):
        run = make_run(training=LONG)
        real = supervisor.RunSupervisor._request_pause

        def ask_and_resume(self, trainer):
            real(self, trainer)
            Run.objects.get(pk=run.pk).request_resume("resumed by ada")

        monkeypatch.setattr(supervisor.RunSupervisor, "_request_pause", ask_and_resume)
        trained(run, lambda: has_step(run, 1), lambda: Run.objects.get(pk=run.pk).request_pause("ada"))
        assert (run.state, run.interruptions, run.reason) == ("queued", 0, "resumed before it was paused")

    def test_pause_while_loading_does_not_wait_for_a_step(self, monkeypatch):
        monkeypatch.setattr(supervisor, "STOP_GRACE_S", 0.5)  # that trainer handles no signal while it loads
        run = make_run(name="load")
        trained(
            run,
            lambda: Run.objects.filter(pk=run.pk, state=State.STARTING).exists() and processes_of(run),
            lambda: Run.objects.get(pk=run.pk).request_pause("paused by ada"),
        )
        assert (run.state, run.reason, run.interruptions) == ("paused", "paused by ada", 0)
        assert processes_of(run) == []

    def test_stop_wins_over_a_pause_that_waits_for_the_step(self, monkeypatch):
        monkeypatch.setattr(supervisor, "STOP_GRACE_S", 0.5)
        run = make_run(name="hang")

        def pause_then_stop():
            Run.objects.get(pk=run.pk).request_pause("ada")
            wait_until(lambda: not has_step(run, 3), 1)
            Run.objects.get(pk=run.pk).request_stop()

        trained(run, lambda: has_step(run, 2), pause_then_stop)
        assert run.state == "stopped"
        assert_nothing_left(run)

    def test_failing_verifier_pauses_the_run_until_somebody_resumes_it(self):
        run = make_run(name="verifier")
        trained(run)
        assert (run.state, run.desired_state, run.step) == ("paused", "pause", 2)
        assert run.reason == "the verifier fails: it did not start; 6 tries"
        run.request_resume("resumed by ada")
        trained(run)
        assert (run.state, run.interruptions) == ("completed", 0)
        assert_nothing_left(run)

    def test_shutdown_does_not_wait_for_a_long_step(self, monkeypatch):
        monkeypatch.setattr(supervisor, "SHUTDOWN_PATIENCE_S", 0.3)
        monkeypatch.setattr(supervisor, "STOP_GRACE_S", 0.5)
        run = make_run(name="hang")
        trained(run, is_shutting_down=lambda: Run.objects.get(pk=run.pk).step >= 2)
        assert (run.state, run.interruptions, run.reason) == ("queued", 0, "the worker is restarting")
        assert_nothing_left(run)

    def test_drain_now_saves_and_requeues_and_the_host_takes_no_more(self):
        run, other = make_run(training=LONG), make_run()
        Host.objects.create(name=host_name())
        trained(run, lambda: has_step(run, 2), lambda: Host.objects.update(drain=Drain.NOW))
        assert (run.state, run.interruptions, run.reason) == ("queued", 0, f"host {host_name()} is drained")
        assert run.events.filter(type="checkpoint").exists()
        assert not supervise(other.pk)
        Host.objects.update(drain=Drain.NO)
        Run.objects.filter(pk=run.pk).update(desired_state=Desire.PAUSE)  # it would be next, and it is long
        assert supervise(other.pk)

    def test_drain_lets_a_run_under_way_finish(self):
        run = make_run()
        Host.objects.create(name=host_name())
        trained(run, lambda: is_running(run), lambda: Host.objects.update(drain=Drain.FINISH))
        assert run.state == "completed"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("fake_trainer", "real_children")
class TestHungTrainer:
    def test_hung_step_leaves_its_stacks_and_is_an_interruption(self, monkeypatch):
        monkeypatch.setattr(supervisor, "STOP_GRACE_S", 0.5)
        run = make_run(name="hang", compute={"stall_timeout_s": 3})
        trained(run)
        assert (run.state, run.interruptions) == ("queued", 1)
        assert run.reason.startswith("no sign of work for 3 s while training")
        assert "most recent call first" in run.reason
        assert "tests/support/fake_trainer.py" in (run.run_dir / "trainer.log").read_text()  # where it hangs
        assert_nothing_left(run)

    def test_run_that_hangs_at_its_fourth_start_fails_with_its_last_lines(self, monkeypatch):
        monkeypatch.setattr(supervisor, "STOP_GRACE_S", 0.2)
        monkeypatch.setattr(watchdog, "LOADING_S", 5.0)
        run = make_run(name="load")
        Run.objects.filter(pk=run.pk).update(interruptions=3)
        trained(run)
        assert run.state == "failed"
        assert run.reason.startswith("interrupted 4 times, most recently: no sign of work for 5 s while loading")
        assert "most recent call first" in run.reason
        assert processes_of(run) == []

    def test_slow_step_with_heartbeats_is_left_alone(self):
        run = make_run(name="slow", compute={"stall_timeout_s": 3})
        supervise(run.pk)  # step 3 takes 5 s without an event
        run.refresh_from_db()
        assert (run.state, run.interruptions) == ("completed", 0)


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class TestWatchdog:
    def test_limit_is_generous_and_follows_the_longest_step(self, tmp_path):
        dog = Watchdog(tmp_path, 0)
        assert dog.limit_s == LOADING_S == 7200
        dog.note({"type": "started"})
        assert dog.limit_s == STALL_FLOOR_S == 1800
        dog.note({"type": "progress", "phase_s": {"generate": 100.0, "update": 50.0}})
        dog.note({"type": "progress", "phase_s": {"generate": 1.0}})
        assert dog.limit_s == 3000  # 20 x 150 s
        dog.note({"type": "progress", "phase_s": "odd"})
        dog.note({"type": "progress", "phase_s": {"generate": None}})
        assert dog.limit_s == 3000

    def test_set_limit_is_taken_as_it_is_but_not_for_loading(self, tmp_path):
        dog = Watchdog(tmp_path, 60)
        assert dog.limit_s == LOADING_S
        dog.note({"type": "log"})  # of a spool that was damaged: the supervisor's own word, before any of the trainer
        assert dog.limit_s == LOADING_S
        dog.note({"type": "started"})
        assert dog.limit_s == 60

    def test_silence_is_counted_in_looks_so_a_frozen_machine_is_not_hung(self, tmp_path):
        clock = Clock()
        dog = Watchdog(tmp_path, 60, clock)
        dog.note({"type": "started"})
        assert not dog.is_hung()
        clock.now += 10_000  # everything slept: one check of 5 s
        assert not dog.is_hung()
        for _ in range(56):  # 5 + 56 = 61 s
            clock.now += 1
            hung = dog.is_hung()
        assert hung

    @pytest.mark.parametrize("name", ["events.jsonl", "pulse"])
    def test_any_change_of_spool_or_heartbeat_starts_the_count_anew(self, tmp_path, name):
        clock = Clock()
        dog = Watchdog(tmp_path, 60, clock)
        dog.note({"type": "started"})
        for minute in range(5):
            (tmp_path / name).write_text("x" * minute)
            for _ in range(50):
                clock.now += 1
                assert not dog.is_hung()


@pytest.mark.django_db
class TestWishes:
    def test_paused_queued_run_is_held_out_of_the_queue(self, make_run):
        run = make_run()
        run.request_pause("paused by ada")
        assert (run.state, run.reason) == ("paused", "paused by ada")
        assert Run.objects.claim(run.pk, Worker("h", 1, 0.0, "f")) is None
        run.request_resume("resumed by ada")
        assert run.state == "queued"
        assert Run.objects.claim(run.pk, Worker("h", 1, 0.0, "f")) is not None

    def test_paused_run_can_be_stopped(self, make_run):
        run = make_run()
        run.request_pause("ada")
        run.request_stop()
        assert (run.state, run.reason) == ("stopped", "stopped by the user")
        run.request_resume("ada")
        assert run.state == "stopped"

    def test_pausing_twice_or_after_the_end_changes_nothing(self, make_run):
        run = make_run()
        run.request_pause("first")
        run.request_pause("second")
        assert run.reason == "first"
        assert [change.to_state for change in run.status_changes.all()] == ["queued", "paused"]
        run.request_stop()
        run.request_pause("third")
        assert (run.state, run.desired_state) == ("stopped", "stop")

    def test_pause_of_a_run_that_is_to_stop_is_refused(self, make_run):
        run = make_run()
        Run.objects.claim(run.pk, Worker("h", 1, 0.0, "f"))
        run.request_stop()
        run.request_pause("ada")
        assert run.desired_state == "stop"

    @pytest.mark.parametrize("is_interruption", [True, False])
    def test_run_that_is_to_pause_is_paused_instead_of_queued_for_ever(self, make_run, is_interruption):
        run = make_run()
        Run.objects.claim(run.pk, Worker("h", 1, 0.0, "f"))
        run.refresh_from_db()
        Run.objects.get(pk=run.pk).request_pause("paused by ada")
        assert run.requeue(reason="its worker died", attempt=1, is_interruption=is_interruption)
        assert (run.state, run.reason) == ("paused", "paused by ada; its worker died")
        assert run.interruptions == is_interruption

    def test_self_paused_run_does_not_slip_back_into_the_queue(self, make_run):
        run = make_run()
        Run.objects.claim(run.pk, Worker("h", 1, 0.0, "f"))
        run.transition_to(State.PAUSED, reason="the verifier fails", attempt=1)
        assert run.desired_state == "pause"
        assert not run.transition_to(State.QUEUED, reason="by mistake")
        assert run.state == "paused"
