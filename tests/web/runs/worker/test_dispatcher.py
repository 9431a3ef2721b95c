"""The dispatcher: messages do not pile up, and runs without a supervisor return to the queue."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from django.conf import settings
from django.db import OperationalError
from django.utils import timezone

from hacrl_web.ops.preflight import ROOT
from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.models import Host, Run, State, Worker
from hacrl_web.runs.worker import dispatcher as module
from hacrl_web.runs.worker.dispatcher import LEASE_S, NOTIFY_EVERY_S, Dispatcher
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.tasks import this_worker
from tests.support.web.factories import make_run, metrics, write_spool
from workers.contract.trainer_process import LOCK_NAME, lock_run_dir, start_trainer

pytestmark = pytest.mark.django_db


class Watch:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def queue(monkeypatch):
    """The queue of messages as a list; the test takes them away like a worker does."""
    messages: list = []
    monkeypatch.setattr(worker_queue, "waiting", lambda folder: len(messages))
    monkeypatch.setattr(worker_queue, "notify_worker", lambda pk, folder: messages.append(pk) or True)
    return messages


@pytest.fixture
def queues(monkeypatch):
    """The same by the data folder whose workers are meant; empty: all."""
    messages: dict[str, list] = {}
    monkeypatch.setattr(worker_queue, "waiting", lambda folder: len(messages.get(folder, [])))
    monkeypatch.setattr(
        worker_queue, "notify_worker", lambda pk, folder: messages.setdefault(folder, []).append(pk) or True
    )
    return messages


def is_marked(process: psutil.Process, mark: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(value.startswith(mark) for value in process.environ().values())
    return False


def elsewhere(run: Run) -> Run:
    claimed = Run.objects.claim(run.pk, Worker("another host", 1, 0.0, "there"))
    assert claimed is not None
    return claimed


def tick(watch: Watch, run: Run) -> None:
    Dispatcher(watch).tick()
    run.refresh_from_db()


def assert_only_silence_loses(run: Run, watch: Watch) -> None:
    dispatcher = Dispatcher(watch)
    dispatcher.tick()
    run.refresh_from_db()
    assert run.state == "starting"
    for _ in range(5):
        watch.now += LEASE_S / 4
        dispatcher.tick()
    run.refresh_from_db()
    assert (run.state, run.interruptions) == ("queued", 1)
    assert "no heartbeat" in run.reason


@contextlib.contextmanager
def worker_of_another_namespace():
    """A living process in a namespace of pids of its own, as it would claim a run."""
    command = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "-p", "-f", "--mount-proc", "--kill-child"]
    try:
        allowed = subprocess.run([*command, "true"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare here (util-linux)")
    if allowed.returncode:
        pytest.skip(f"no namespace can be made here: {allowed.stderr.strip()}")
    code = (
        "import dataclasses, json, sys, django; django.setup()\n"
        "from hacrl_web.runs.worker.tasks import this_worker\n"
        "print(json.dumps(dataclasses.asdict(this_worker())), flush=True); sys.stdin.read()"
    )
    own = {"HACRL_DATA": str(settings.DATA_DIR), "DJANGO_SETTINGS_MODULE": "hacrl_web.settings"}
    with subprocess.Popen(
        [*command, sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield Worker(**json.loads(process.stdout.readline()))
        finally:
            process.stdin.close()  # it ends


class TestNotify:
    def test_queued_runs_are_notified_in_order_and_again_until_claimed(self, watch, queue):
        first, second = make_run(), make_run()
        dispatcher = Dispatcher(watch)
        dispatcher.tick()
        assert queue == [first.pk, second.pk]
        elsewhere(first)
        queue.clear()
        watch.now += NOTIFY_EVERY_S
        dispatcher.tick()
        assert queue == [second.pk]

    def test_busy_worker_does_not_pile_up_messages(self, watch, queue):
        """One worker holds a run for ten hours, three runs wait: their messages stay three."""
        for _ in range(3):
            make_run()
        dispatcher = Dispatcher(watch)
        for _ in range(36_000 // 60):
            dispatcher.notify_workers()
            watch.now += 60
        assert len(queue) == 3

    def test_lost_messages_are_sent_again_within_15_seconds(self, watch, queue):
        run = make_run()
        dispatcher = Dispatcher(watch)
        dispatcher.tick()
        queue.clear()  # Redis restarted empty
        for _ in range(15):
            watch.now += 1
            dispatcher.notify_workers()
        assert queue == [run.pk]

    def test_thousand_queued_runs_are_notified_a_few_at_a_time(self, watch, queue, user):
        run = make_run(user)
        made = {"owner": user, "project": run.project, "name": "r", "spec": run.spec, "algorithm": "hacpo"}
        Run.objects.bulk_create(Run(**made, seed=seed) for seed in range(1000))
        dispatcher = Dispatcher(watch)
        dispatcher.notify_workers()
        assert len(queue) == module.NOTIFY_AT_ONCE
        queue.clear()
        dispatcher.notify_workers()
        assert len(set(queue)) == module.NOTIFY_AT_ONCE

    def test_begun_run_is_notified_to_the_workers_of_its_folder(self, watch, queues):
        """Another host's worker would take the message, and could do nothing."""
        begun, new = make_run(), make_run()
        elsewhere(begun).requeue(reason="silent", attempt=1, is_interruption=True)
        dispatcher = Dispatcher(watch)
        assert dispatcher.notify_workers() == 2
        assert queues == {"there": [begun.pk], "": [new.pk]}
        queues[""].clear()  # a worker took it; the other one waits for a host that is down
        for _ in range(100):
            watch.now += NOTIFY_EVERY_S
            dispatcher.notify_workers()
            queues[""].clear()
        assert queues["there"] == [begun.pk]

    def test_stopped_run_is_not_notified(self, watch, queue):
        make_run().request_stop()
        Dispatcher(watch).tick()
        assert queue == []

    def test_without_redis_it_goes_on(self, watch):
        make_run()
        dispatcher = Dispatcher(watch)
        assert dispatcher.notify_workers() == 0  # the tests' Redis address has no server
        dispatcher.tick()


class TestReap:
    @pytest.fixture(autouse=True)
    def _quiet(self, queue):
        pass

    def test_silent_run_is_lost_and_requeued(self, watch):
        run = elsewhere(make_run())
        dispatcher = Dispatcher(watch)
        for _ in range(int(LEASE_S) + 2):
            dispatcher.tick()
            watch.now += 1
        run.refresh_from_db()
        assert (run.state, run.interruptions) == ("queued", 1)
        assert "no heartbeat from another host" in run.reason
        assert [c.to_state for c in run.status_changes.all()] == ["queued", "starting", "lost", "queued"]

    def test_run_whose_heartbeat_waited_for_the_same_lock_is_not_lost(self):
        run = elsewhere(make_run())
        Run.objects.filter(pk=run.pk).update(heartbeat_at=timezone.now())
        module._mark_if_lost(run, "", LEASE_S + 1)  # as read before that
        run.refresh_from_db()
        assert run.state == "starting"

    def test_run_with_a_heartbeat_is_never_lost(self, watch):
        run = elsewhere(make_run())
        dispatcher = Dispatcher(watch)
        for second in range(200):
            dispatcher.tick()
            watch.now += 1
            if second % 10 == 0:
                Run.objects.filter(pk=run.pk).update(heartbeat_at=f"2001-01-01T00:{second // 60:02}:{second % 60:02}Z")
        run.refresh_from_db()
        assert run.state == "starting"

    def test_silence_while_nobody_can_read_or_write_the_database_proves_nothing(self, watch, monkeypatch):
        run = elsewhere(make_run())
        dispatcher = Dispatcher(watch)
        dispatcher.mark_lost_runs()

        def away(*_, **__):
            raise OperationalError("the database is away")

        with monkeypatch.context() as without:
            without.setattr(Run.objects, "filter", away)
            for _ in range(2 * int(LEASE_S)):
                watch.now += 1
                with pytest.raises(OperationalError):
                    dispatcher.mark_lost_runs()
        watch.now += 1
        dispatcher.mark_lost_runs()
        run.refresh_from_db()
        assert run.state == "starting"

    def test_old_heartbeat_alone_proves_nothing(self, watch):
        """The clock jumped an hour, or this process has just started: it waits for what it sees itself."""
        run = elsewhere(make_run())
        Run.objects.filter(pk=run.pk).update(heartbeat_at="2001-01-01T00:00Z")
        dispatcher = Dispatcher(watch)
        dispatcher.tick()
        watch.now += LEASE_S - 1
        dispatcher.tick()
        run.refresh_from_db()
        assert run.state == "starting"

    def test_time_in_which_it_could_not_look_does_not_count(self, watch):
        run = elsewhere(make_run())
        dispatcher = Dispatcher(watch)
        dispatcher.tick()
        watch.now += 10 * LEASE_S  # the database was away, or this process slept
        dispatcher.tick()
        run.refresh_from_db()
        assert run.state == "starting"

    def test_process_that_is_gone_from_this_host_is_noticed_at_once(self, watch):
        run = make_run()
        me = this_worker()
        Run.objects.claim(run.pk, replace(me, pid=2**22 + 1, started=1.0))
        tick(watch, run)
        assert (run.state, run.interruptions) == ("queued", 1)
        assert "is gone" in run.reason

    def test_other_process_with_the_same_pid_is_not_taken_for_it(self, watch):
        run = make_run()
        me = this_worker()
        Run.objects.claim(run.pk, replace(me, started=me.started - 100))
        tick(watch, run)
        assert run.state == "queued"

    @pytest.mark.parametrize("namespace", ["1", ""])  # another container's; that of a claim of an older version
    def test_pid_of_another_namespace_proves_nothing(self, watch, namespace):
        """The containers of a host have its name, and each counts its processes by itself."""
        run = make_run()
        Run.objects.claim(run.pk, replace(this_worker(), pid=2**22 + 1, started=1.0, namespace=namespace))
        assert_only_silence_loses(run, watch)

    def test_worker_in_a_container_beside_the_dispatcher_keeps_its_run(self, watch):
        run = make_run()
        with worker_of_another_namespace() as worker:
            assert (worker.host, worker.boot) == (this_worker().host, this_worker().boot)
            Run.objects.claim(run.pk, worker)
            assert_only_silence_loses(run, watch)

    @pytest.mark.parametrize("is_here", [True, False])
    def test_restart_of_the_host_is_noticed_at_once(self, watch, is_here):
        """Also that of another host, as soon as its worker is up again."""
        run, me = make_run(), this_worker()
        Host.objects.create(name="another host", boot_id="after")
        # The pid is taken again by a living process.
        Run.objects.claim(run.pk, replace(me, host=me.host if is_here else "another host", boot="before"))
        tick(watch, run)
        assert (run.state, run.interruptions) == ("queued", 1)
        assert "was restarted" in run.reason

    def test_lost_run_says_which_host_it_waits_for(self, watch):
        run = elsewhere(make_run())
        run.transition_to(State.LOST, reason="no heartbeat", attempt=1)
        tick(watch, run)
        assert run.reason == "no heartbeat; waiting for host another host, which holds its files"
        assert Run.objects.claim(run.pk, this_worker()) is None

    def test_lost_run_that_should_pause_is_paused(self, watch):
        run = elsewhere(make_run())
        run.request_pause("paused by ada")
        run.transition_to(State.LOST, reason="silent", attempt=1)
        tick(watch, run)
        assert (run.state, run.interruptions) == ("paused", 1)
        assert run.reason.startswith("paused by ada; silent")

    @pytest.mark.parametrize(
        ("state", "desired_state", "end"),
        [
            ("paused", "run", "queued"),
            ("queued", "pause", "paused"),
            ("paused", "stop", "stopped"),
            ("queued", "stop", "stopped"),
        ],
    )
    def test_request_whose_process_died_halfway_is_carried_out(self, watch, state, desired_state, end):
        run = make_run()
        Run.objects.filter(pk=run.pk).update(state=state, desired_state=desired_state)
        tick(watch, run)
        assert run.state == end

    def test_own_living_process_is_left_alone(self, watch):
        run = make_run()
        Run.objects.claim(run.pk, this_worker())
        tick(watch, run)
        assert run.state == "starting"

    def test_lost_run_that_should_stop_is_stopped(self, watch):
        run = elsewhere(make_run())
        run.request_pause("paused by eve")
        run.request_stop("stopped by ada")
        run.request_stop("stopped by eve")  # the first one did it
        run.transition_to(State.LOST, reason="silent", attempt=1)
        tick(watch, run)
        assert (run.state, run.reason) == ("stopped", "stopped by ada")

    def test_nothing_is_left_of_a_lost_run_that_ends(self, watch):
        """Its trainer had ended, and its supervisor was killed before it ended what the trainer had started."""
        run = elsewhere(make_run())
        Run.objects.filter(pk=run.pk).update(data_folder=data_folder_id())
        run.run_dir.mkdir(parents=True)
        code = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"
        trainer = start_trainer(run.run_dir, 1, command=[sys.executable, "-c", code])
        trainer.process.wait()
        left = [one for one in psutil.process_iter() if one.name() == "sleep" and is_marked(one, trainer._mark)]
        assert len(left) == 1
        run.request_stop("stopped by ada")
        run.transition_to(State.LOST, reason="silent", attempt=1)
        tick(watch, run)
        assert run.state == "stopped"
        assert not left[0].is_running() or left[0].status() == psutil.STATUS_ZOMBIE

    def test_dispatcher_that_died_halfway_finishes_later(self, watch):
        run = elsewhere(make_run())
        run.transition_to(State.LOST, reason="silent", attempt=1)
        tick(watch, run)
        assert run.state == "queued"

    def test_fourth_loss_fails_the_run(self, watch):
        run = elsewhere(make_run())
        Run.objects.filter(pk=run.pk).update(interruptions=3)
        run.transition_to(State.LOST, reason="silent", attempt=1)
        tick(watch, run)
        assert run.state == "failed"
        assert "interrupted 4 times" in run.reason

    @pytest.mark.parametrize(
        ("station", "state"), [("finish_lost_run", State.LOST), ("_is_process_gone", State.STARTING)]
    )
    def test_run_that_cannot_be_looked_at_does_not_keep_the_others_from_it(self, watch, monkeypatch, station, state):
        """Two runs to take back, or to end; the first one fails."""
        runs = [elsewhere(make_run()) for _ in range(2)]
        Run.objects.update(state=state, interruptions=3)
        failed = []

        def look(run, *_):
            if not failed:
                failed.append(run.pk)
                raise RuntimeError("unreadable")
            return True

        monkeypatch.setattr(module, station, look)
        Dispatcher(watch).tick()
        states = {run.pk: Run.objects.get(pk=run.pk).state for run in runs}
        assert states.pop(failed[0]) == state
        assert list(states.values()) == ["failed"]

    def test_run_that_cannot_be_queued_does_not_keep_another_from_the_queue(self, watch, queue, monkeypatch):
        """Two paused runs that are to continue; the first one cannot be written."""
        runs = [make_run() for _ in range(2)]
        Run.objects.update(state=State.PAUSED, desired_state="run")
        failed, transition = [], Run.transition_to

        def transition_to(run, *arguments, **columns):
            if not failed:
                failed.append(run.pk)
                raise RuntimeError("unreadable")
            return transition(run, *arguments, **columns)

        monkeypatch.setattr(Run, "transition_to", transition_to)
        Dispatcher(watch).tick()
        states = {run.pk: Run.objects.get(pk=run.pk).state for run in runs}
        assert states.pop(failed[0]) == "paused"
        assert list(states.values()) == ["queued"]
        assert queue == list(states), "the rest of the tick is done"


class TestFinishLost:
    """A run whose supervisor vanished ends with all its events, and not before its trainer."""

    @pytest.fixture
    def left(self, queue, monkeypatch):
        """Claimed here and lost, with an event in the spool that is not stored."""
        monkeypatch.setattr(module, "FINISH_S", 60.0)  # a slow machine may need more than a second
        run = Run.objects.claim(make_run().pk, this_worker())
        run.transition_to(State.RUNNING, reason="", attempt=1)
        write_spool(run.run_dir, 1, metrics(1))
        run.transition_to(State.LOST, reason="silent", attempt=1)
        return run

    @pytest.mark.parametrize("moment", ["lost", "queued", "paused"])
    def test_stopped_run_has_the_rest_of_its_spool(self, watch, left, moment):
        if moment == "paused":
            left.request_pause("a user")
        if moment != "lost":
            left.requeue(reason="silent", attempt=1, is_interruption=True)
        assert left.state == moment
        left.request_stop()
        assert left.state == moment  # not before its events are stored
        tick(watch, left)
        assert (left.state, left.last_seq, left.events.count()) == ("stopped", 1, 1)

    def test_run_that_is_stopped_while_the_dispatcher_requeues_it_has_the_rest_of_its_spool(self, watch, left):
        Run.objects.get(pk=left.pk).request_stop()
        module._requeue_or_end(left)  # as read before that
        left.refresh_from_db()
        assert (left.state, left.events.count()) == ("lost", 0)
        tick(watch, left)
        assert (left.state, left.events.count()) == ("stopped", 1)

    def test_run_whose_spool_takes_longer_than_a_tick_may_ends_in_a_later_one(self, watch, left, monkeypatch):
        left.request_stop()
        monkeypatch.setattr(module, "FINISH_S", 0.0)  # other runs wait meanwhile
        tick(watch, left)
        assert (left.state, left.events.count()) == ("lost", 0)
        monkeypatch.setattr(module, "FINISH_S", 60.0)
        tick(watch, left)
        assert (left.state, left.events.count()) == ("stopped", 1)

    def test_failed_run_has_the_rest_of_its_spool(self, watch, left):
        Run.objects.filter(pk=left.pk).update(interruptions=3)
        tick(watch, left)
        assert (left.state, left.events.count()) == ("failed", 1)

    def test_run_does_not_end_while_its_trainer_lives(self, watch, left):
        left.request_stop()
        lock = lock_run_dir(left.run_dir)
        tick(watch, left)
        assert (left.state, left.desired_state) == ("lost", "stop")
        os.close(lock)
        tick(watch, left)
        assert left.state == "stopped"

    def test_run_whose_directory_cannot_be_locked_waits_for_its_end(self, watch, left):
        left.request_stop()
        (left.run_dir / LOCK_NAME).unlink(missing_ok=True)
        (left.run_dir / LOCK_NAME).mkdir()  # not even root can open it for writing
        tick(watch, left)
        assert left.state == "lost"
        (left.run_dir / LOCK_NAME).rmdir()
        tick(watch, left)
        assert (left.state, left.events.count()) == ("stopped", 1)

    def test_run_whose_directory_is_elsewhere_ends_all_the_same(self, watch, left):
        Run.objects.filter(pk=left.pk).update(data_folder="there")
        left.request_stop()
        tick(watch, left)
        assert (left.state, left.events.count()) == ("stopped", 0)
