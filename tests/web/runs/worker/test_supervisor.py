"""One run from claim to its end, with a real trainer process that behaves or does not
(tests/support/fake_trainer.py)."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from django.conf import settings as django_settings
from django.db import OperationalError, connection

from hacrl_web.runs.models import (
    AnswerChunk,
    Contribution,
    QuestionChunk,
    RolloutSample,
    Run,
    State,
    TelemetryEvent,
    Worker,
)
from hacrl_web.runs.telemetry import shipper
from hacrl_web.runs.worker import supervisor
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.tasks import supervise
from hacrl_web.runs.worker.trainer_environment import trainer_environment
from tests.support.forked import Forked
from tests.support.waiting import wait_until
from tests.support.web.factories import as_of_earlier_version, make_run
from workers.contract import trainer_log
from workers.contract.events import Log
from workers.contract.spool import SPOOL_NAME, SpoolWriter, read_records, rotated
from workers.contract.trainer_process import LOCK_NAME, RunDirBusy, start_trainer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fake_trainer")]


def stored_seqs(run: Run) -> list[int]:
    """The seq of every stored row of the run, of all tables."""
    tables = (TelemetryEvent, RolloutSample, Contribution, QuestionChunk, AnswerChunk)
    return sorted(seq for table in tables for seq in table.objects.filter(run=run).values_list("seq", flat=True))


def spool_seqs(run: Run) -> list[int]:
    return [record["seq"] for _, record in read_records(run.run_dir / SPOOL_NAME)]


def assert_nothing_left(run: Run) -> None:
    """I2: each event of the spool is stored exactly once. I4: no process of the run is left."""
    assert stored_seqs(run) == spool_seqs(run) == list(range(1, run.last_seq + 1))
    assert processes_of(run) == []


def processes_of(run: Run) -> list[int]:
    """By their command lines, and the trainers that are forks of this process, of any run."""
    alive = (one.info for one in psutil.process_iter(["pid", "cmdline", "status"]))
    return [
        one["pid"]
        for one in alive
        if (one["pid"] in Forked.forks or str(run.run_dir) in (one["cmdline"] or []))
        and one["status"] != psutil.STATUS_ZOMBIE
    ]


def changes(run: Run) -> list[str]:
    return list(run.status_changes.values_list("to_state", flat=True))


def during(run: Run, condition, action) -> threading.Thread:
    """Do something from another thread once a condition holds while the run is supervised."""

    def wait_and_act():
        try:
            if wait_until(condition):
                action()
        finally:
            connection.close()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def trained(run: Run, condition=None, action=None, **how) -> bool:
    """Supervise a run to the end of its attempt and read it again. action: once the condition holds meanwhile."""
    thread = during(run, condition, action) if condition else None
    has_trained = supervise(run.pk, **how)
    if thread:
        thread.join()
    run.refresh_from_db()
    return has_trained


def is_running(run: Run) -> bool:
    return Run.objects.filter(pk=run.pk, state=State.RUNNING).exists()


def test_run_is_trained_to_its_end_and_every_event_is_stored():
    run = make_run()
    assert trained(run)
    assert changes(run) == ["queued", "starting", "running", "completed"]
    assert (run.step, run.total_steps, run.attempt) == (5, 5, 1)
    assert run.progress["rollouts_generated"] == 5 * 4 * 8 * 2
    # Each step: 2 agents + 2 pairs + progress; 2 rollouts; 4 contributions.
    assert run.events.filter(type="metrics").count() == 5 * 4
    assert (run.rollouts.count(), run.contributions.count()) == (10, 20)
    assert_nothing_left(run)
    assert run.run_dir.stat().st_mode & 0o777 == 0o700


def test_crash_is_an_interruption_and_the_run_goes_on_in_a_second_attempt():
    run = make_run(name="crash-once", checkpoint={"save_steps": 2})
    assert trained(run)
    assert (run.state, run.interruptions) == ("queued", 1)
    assert "ended with status 3" in run.reason
    assert "the last line before the crash" in run.reason
    assert trained(run)
    assert (run.state, run.attempt, run.step) == ("completed", 2, 5)
    starts = [event.payload for event in run.events.filter(type="started")]
    assert len(starts) == 2
    assert list(run.events.filter(type="started").values_list("step", flat=True)) == [0, 2]
    assert_nothing_left(run)


def test_lost_agent_is_an_interruption_and_the_run_goes_on_from_its_checkpoint():
    run = make_run(name="lost-agent", checkpoint={"save_steps": 2})
    assert trained(run)
    assert (run.state, run.interruptions) == ("queued", 1)
    assert run.reason.startswith("the process of agent B is gone: its node has died")
    assert trained(run)
    assert (run.state, run.attempt, run.step) == ("completed", 2, 5)
    assert list(run.events.filter(type="started").values_list("step", flat=True)) == [0, 2]


def test_output_without_measure_is_cut_while_the_run_goes_on(monkeypatch):
    """Five steps of 4,000 lines, about 80 kB each, where 100 kB are too long."""
    for name, size in (("FIRST_BYTES", 5_000), ("KEPT_BYTES", 30_000), ("LIMIT_BYTES", 100_000), ("CHECK_S", 0.02)):
        monkeypatch.setattr(trainer_log, name, size)
    run = make_run(name="flood lines=4000 pace=0.3")
    assert trained(run)
    assert (run.state, run.step) == ("completed", 5)
    shown = list(trainer_log.read_output(run.run_dir))
    assert (shown[0], shown[-1]) == ("step 1 line 0", "step 5 line 3999")
    assert [line for line in shown if line.startswith("[cut: ")]
    assert trainer_log.allocated_bytes((run.run_dir / "trainer.log").stat()) < 100_000 + 190_000
    assert_nothing_left(run)


def test_run_that_always_crashes_fails_with_its_last_lines():
    run = make_run(name="crash")
    for _ in range(4):
        assert supervise(run.pk)
    assert not trained(run)
    assert (run.state, run.attempt) == ("failed", 4)
    assert run.reason.startswith("interrupted 4 times")
    assert run.reason.endswith("the last line before the crash")
    assert_nothing_left(run)


def test_failed_trainer_fails_the_run_with_its_reason():
    run = make_run(name="fail")
    trained(run)
    assert (run.state, run.reason) == ("failed", "the fake loss became NaN in step 3")
    assert_nothing_left(run)


def test_run_under_an_option_that_left_fails_with_the_way_out():
    run = as_of_earlier_version(make_run(), training={"curriculum_rest": 3})
    trained(run)
    assert run.state == "failed"
    assert "cannot be trained by this version: training.curriculum_rest 3 left this version" in run.reason
    assert run.reason.endswith("leave it out to train without it.")


def test_stop_asked_after_the_trainer_failed_does_not_hide_why(monkeypatch):
    run = make_run(name="fail")
    conclude = supervisor.RunSupervisor._conclude

    def stop_and_conclude(self, status):
        Run.objects.get(pk=run.pk).request_stop()
        conclude(self, status)

    monkeypatch.setattr(supervisor.RunSupervisor, "_conclude", stop_and_conclude)
    trained(run)
    assert (run.state, run.reason) == ("failed", "the fake loss became NaN in step 3")


def test_exit_without_an_outcome_is_no_completion():
    run = make_run(name="silent")
    trained(run)
    assert (run.state, run.interruptions) == ("queued", 1)
    assert "and reported no outcome" in run.reason


def test_trainer_that_could_not_write_its_end_on_a_full_disk_is_paused_and_no_interruption():
    run = make_run(name="disk")
    trained(run)
    assert (run.state, run.interruptions) == ("paused", 0)
    assert run.reason == "disk: it was full when the trainer started or ended; make room, then resume"


def test_run_whose_folder_cannot_be_written_on_a_full_disk_is_paused_and_no_interruption(monkeypatch):
    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(supervisor, "Shipper", refused)
    run = make_run()
    trained(run)
    assert (run.state, run.interruptions) == ("paused", 0)
    assert run.reason.startswith("disk: it was full when the trainer started")


def test_stop_while_running_ends_the_trainer_by_its_own_word():
    run = make_run(training={"steps": 100_000, "train_batch_size": 4, "mini_batch_size": 4})
    trained(run, lambda: is_running(run), lambda: Run.objects.get(pk=run.pk).request_stop("by ada"))
    assert (run.state, run.reason) == ("stopped", "by ada")
    assert run.events.filter(type="finished").get().payload["outcome"] == "stopped"
    assert_nothing_left(run)


@pytest.mark.parametrize("mode", ["deaf", "hang"])
def test_trainer_that_does_not_stop_is_killed_after_its_grace(monkeypatch, mode):
    monkeypatch.setattr(supervisor, "STOP_GRACE_S", 0.5)
    run = make_run(name=mode, training={"steps": 100_000, "train_batch_size": 4, "mini_batch_size": 4})
    trained(
        run,
        lambda: run.events.filter(step=2, type="progress").exists(),
        lambda: Run.objects.get(pk=run.pk).request_stop("by ada"),
    )
    assert (run.state, run.reason) == ("stopped", "by ada; the trainer was killed")
    assert_nothing_left(run)


def test_pruned_trainer_that_does_not_stop_is_killed_within_seconds(monkeypatch):
    """The device is for the next trial: 2 s of grace, whatever that of other stops."""
    monkeypatch.setattr(supervisor, "STOP_GRACE_S", 3600.0)
    run = make_run(name="deaf", training={"steps": 100_000, "train_batch_size": 4, "mini_batch_size": 4})

    def prune() -> None:
        Run.objects.get(pk=run.pk).request_stop("pruned at step 2: its score is below the median")

    thread = during(run, lambda: run.events.filter(step=2, type="progress").exists(), prune)
    supervise(run.pk)
    thread.join()
    run.refresh_from_db()
    assert (run.state, run.reason.split(";")[0]) == ("stopped", "pruned at step 2: its score is below the median")
    assert_nothing_left(run)


def test_child_of_the_trainer_does_not_outlive_the_run():
    run = make_run(name="orphan")
    trained(run)
    assert run.state == "completed"
    child = int(re.search(r"child (\d+)", (run.run_dir / "trainer.log").read_text()).group(1))
    assert wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie")


def test_shutdown_of_the_worker_requeues_without_counting():
    run = make_run(training={"steps": 100_000, "train_batch_size": 4, "mini_batch_size": 4})
    trained(run, is_shutting_down=lambda: Run.objects.get(pk=run.pk).step >= 2)
    assert (run.state, run.interruptions, run.reason) == ("queued", 0, "the worker is restarting")
    # The step under way was finished and saved: the deploy has cost nothing.
    assert run.events.filter(type="finished").get().payload["outcome"] == "paused"
    assert run.events.filter(type="checkpoint").last().step == run.step
    assert_nothing_left(run)


def test_term_to_the_supervisor_itself_requeues_too():
    run = make_run(training={"steps": 100_000, "train_batch_size": 4, "mini_batch_size": 4})
    trained(run, lambda: is_running(run), lambda: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    assert (run.state, run.interruptions) == ("queued", 0)
    assert signal.getsignal(signal.SIGTERM) == before


def test_message_100_times_is_one_claim():
    run = make_run()
    assert [supervise(run.pk) for _ in range(100)] == [True] + [False] * 99
    run.refresh_from_db()
    assert run.attempt == 1
    assert changes(run).count("starting") == 1


def test_supervisor_that_lost_its_lease_writes_nothing_and_kills_its_trainer():
    run = make_run(training={"steps": 100_000, "train_batch_size": 4, "mini_batch_size": 4})
    seen = {}

    def take_over():
        taken = Run.objects.get(pk=run.pk)
        taken.transition_to(State.LOST, reason="silent", attempt=1)
        taken.requeue(reason="silent", attempt=1, is_interruption=True)
        Run.objects.claim(run.pk, Worker("other", 1, 0.0, data_folder_id()))
        seen["last_seq"] = Run.objects.get(pk=run.pk).last_seq
        seen["changes"] = changes(run)

    trained(run, lambda: is_running(run), take_over)
    assert (run.state, run.attempt, run.last_seq) == ("starting", 2, seen["last_seq"])
    assert changes(run) == seen["changes"]
    assert processes_of(run) == []


def test_run_directory_in_use_is_not_claimed(tmp_path):
    run = make_run()
    run.run_dir.mkdir(parents=True)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from workers.contract.trainer_process import lock_run_dir;"
            "lock_run_dir(Path(sys.argv[1])); print('locked', flush=True); time.sleep(60)",
            str(run.run_dir),
        ],
        stdout=subprocess.PIPE,
        cwd=django_settings.BASE_DIR,
    )
    try:
        assert holder.stdout.readline() == b"locked\n"
        assert not supervise(run.pk)
    finally:
        holder.kill()
        holder.communicate()
    run.refresh_from_db()
    assert (run.state, run.attempt) == ("queued", 0)
    assert supervise(run.pk)


def test_run_directory_that_cannot_be_locked_is_passed_over():
    """The first of the queue must not keep those behind it from starting."""
    unreadable, second = make_run(), make_run()
    (unreadable.run_dir / LOCK_NAME).mkdir(parents=True)  # not even root can open it for writing
    assert supervise(second.pk)
    unreadable.refresh_from_db()
    second.refresh_from_db()
    assert (unreadable.state, unreadable.attempt, second.state) == ("queued", 0, "completed")


@pytest.mark.parametrize("station", ["_repair_spool", "_handle_requests", "_drain", "_conclude"])
def test_supervisor_that_fails_itself_says_so_and_the_run_goes_on(monkeypatch, station):
    def fail(*_):
        raise RuntimeError("a bug")

    run = make_run()
    with monkeypatch.context() as patch:
        patch.setattr(supervisor.RunSupervisor, station, fail)
        assert trained(run)
    assert (run.state, run.interruptions, run.reason) == ("queued", 1, "its supervisor failed: RuntimeError: a bug")
    assert processes_of(run) == []
    assert trained(run)
    assert run.state == "completed"
    assert_nothing_left(run)


def test_run_that_a_failing_supervisor_ends_has_all_its_events(monkeypatch):
    run = make_run()
    Run.objects.filter(pk=run.pk).update(interruptions=3)
    monkeypatch.setattr(supervisor.RunSupervisor, "_conclude", lambda *_: {}["a bug"])
    assert trained(run)
    assert run.state == "failed"
    assert run.reason.endswith("its supervisor failed: KeyError: 'a bug'")
    assert_nothing_left(run)


def test_database_that_is_away_for_a_while_costs_nothing(monkeypatch):
    """The shipper fails for a while during the run; the trainer continues and everything arrives once."""
    monkeypatch.setattr(supervisor, "DATABASE_PAUSE_S", 0.05)
    real, calls = shipper.Shipper.ship, []

    def failing(self):
        calls.append(1)
        if 3 <= len(calls) < 12:
            raise OperationalError("the database is away")
        return real(self)

    monkeypatch.setattr(shipper.Shipper, "ship", failing)
    run = make_run(training={"steps": 150, "train_batch_size": 4, "mini_batch_size": 4})  # longer than it is away
    trained(run)
    assert run.state == "completed"
    assert len(calls) > 12
    assert_nothing_left(run)


@pytest.mark.parametrize("name", ["complete", "fail"])
def test_database_that_fails_after_a_batch_is_stored_costs_no_word_of_the_trainer(monkeypatch, name):
    """All events come in one batch, and the database fails when the state should become running."""
    monkeypatch.setattr(supervisor, "DATABASE_PAUSE_S", 0.01)
    real_ship, real_transition, failed = shipper.Shipper.ship, Run.transition_to, []

    def ship(self):
        path = self.reader.run_dir / SPOOL_NAME
        finished = path.exists() and any(r["type"] == "finished" for _, r in read_records(path))
        return real_ship(self) if finished else shipper.SpoolBatch(offset=self.reader.offset)

    def transition_to(self, new, **columns):
        if new == State.RUNNING and len(failed) < 2:
            failed.append(1)
            raise OperationalError("the database is away")
        return real_transition(self, new, **columns)

    monkeypatch.setattr(shipper.Shipper, "ship", ship)
    monkeypatch.setattr(Run, "transition_to", transition_to)
    run = make_run(name=name)
    trained(run)
    assert len(failed) == 2
    assert changes(run) == ["queued", "starting", "running", "completed" if name == "complete" else "failed"]
    assert run.interruptions == 0
    assert_nothing_left(run)


def test_stop_while_the_directory_is_busy_ends_the_run(monkeypatch):
    """The user stops after the claim; the run must not return to the queue, from which no worker would take it."""
    run = make_run()

    def start(self):
        Run.objects.get(pk=run.pk).request_stop()
        raise RunDirBusy("in use")

    monkeypatch.setattr(supervisor.RunSupervisor, "_start", start)
    assert trained(run)
    assert (run.state, run.desired_state) == ("stopped", "stop")


def test_spool_shortened_by_a_power_cut_does_not_reuse_numbers():
    run = make_run(name="crash-once", checkpoint={"save_steps": 2})
    trained(run)
    stored = stored_seqs(run)
    spool = run.run_dir / SPOOL_NAME
    lines = spool.read_bytes().splitlines(keepends=True)
    spool.write_bytes(b"".join(lines[:5]))
    trained(run)
    assert run.state == "completed"
    assert stored_seqs(run) == list(range(1, run.last_seq + 1))
    assert run.last_seq > len(stored)
    assert (
        run.events.get(seq=len(stored) + 1)
        .payload["message"]
        .endswith("were lost from the spool; the database has them")
    )


def test_damaged_end_of_the_spool_that_nobody_stored_is_said_on_the_run():
    """The supervisor's writer cuts it off before the trainer can see it, so the supervisor records the loss."""
    run = make_run(name="crash-once", checkpoint={"save_steps": 2})
    assert trained(run)
    writer = SpoolWriter(run.run_dir, 1)
    writer.emit(Log(message="never stored"))
    writer.close()
    spool = run.run_dir / SPOOL_NAME
    spool.write_bytes(spool.read_bytes().replace(b"never stored", b"never st0red"))
    last = run.last_seq
    assert trained(run)
    warning = run.events.get(seq=last + 1).payload
    assert warning["message"].startswith(f"events lost: the line of event {last + 1} in {SPOOL_NAME} is damaged")
    assert (warning["level"], warning["incident"]) == ("warning", "damaged file")
    assert run.state == "completed"
    assert_nothing_left(run)


def test_command_that_does_not_exist_fails_the_run_with_the_reason(settings):
    settings.TRAINER_COMMAND = ["/no/such/program"]
    run = make_run()
    assert trained(run)
    assert run.state == "failed"
    assert "/no/such/program" in run.reason


SUPERVISE = """
import django, sys, uuid
django.setup()
from django.conf import settings
from pathlib import Path
import json
settings.DATABASES["default"]["NAME"] = sys.argv[1]
settings.RUNS_DIR = Path(sys.argv[2])
settings.TRAINER_COMMAND = json.loads(sys.argv[3])
from hacrl_web.runs.worker.tasks import supervise
supervise(uuid.UUID(sys.argv[4]))
"""


def test_kill_of_the_supervisor_ends_the_trainer_within_two_seconds(settings):
    run = make_run(training={"steps": 100_000, "train_batch_size": 4, "mini_batch_size": 4})
    arguments = [
        str(connection.settings_dict["NAME"]),
        str(settings.RUNS_DIR),
        json.dumps(settings.TRAINER_COMMAND),
        str(run.pk),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, *arguments],
        cwd=Path(settings.BASE_DIR),
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "hacrl_web.settings", "HACRL_DATA": str(settings.DATA_DIR)},
    )
    try:
        assert wait_until(lambda: is_running(run))
        assert len(processes_of(run)) == 1
    finally:
        process.kill()
        process.wait()
    # By itself it would continue for a quarter of an hour.
    assert wait_until(lambda: processes_of(run) == [], 2), "the trainer outlived its supervisor"
    run.refresh_from_db()
    assert run.state == "running"  # no process could write more: the dispatcher finds out


def test_trainer_sees_no_secret(monkeypatch):
    secrets = {
        "DATABASE_URL": "postgres://u:pw@h/d",
        "REDIS_URL": "redis://:pw@h",
        "HACRL_SECRET_KEY": "s",
        "HF_TOKEN": "hf_x",
        "HUGGING_FACE_HUB_TOKEN": "hf_x",
        "PGPASSWORD": "pw",
        "AWS_SECRET_ACCESS_KEY": "s",
        "VLLM_API_KEY": "s",
        "DJANGO_SETTINGS_MODULE": "x",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("HACRL_BUBBLEWRAP", "0")
    seen = trainer_environment()
    assert not set(secrets) & set(seen)
    assert seen["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"
    assert {"PATH", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "HACRL_BUBBLEWRAP"} <= set(seen)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("https_proxy", "http://ada:p@ss/w@proxy.example:3128", "http://proxy.example:3128"),
        ("HTTP_PROXY", "ada:pw@proxy.example:3128", "proxy.example:3128"),
        ("http_proxy", "http://proxy.example:3128/", "http://proxy.example:3128/"),
        ("no_proxy", "localhost,.example", "localhost,.example"),
    ],
)
def test_trainer_sees_no_login_of_a_proxy(monkeypatch, name, value, kept):
    monkeypatch.setenv(name, value)
    assert trainer_environment()[name] == kept


def test_trainer_works_in_its_run_directory_and_finds_our_code(tmp_path, monkeypatch):
    """A hub id such as tests/web must not be taken for the folder of that name."""
    monkeypatch.chdir(tmp_path)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    say = (
        "import os, sys, workers.contract.spec.run;"
        "print(os.getcwd(), os.path.exists('tests/web'), os.path.exists(sys.argv[1]))"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/elsewhere"}
    (run_dir / "spec.json").write_text("{}")
    trainer = start_trainer(Path("run"), 1, command=[sys.executable, "-c", say], environment=environment)
    trainer.process.wait(60)
    assert trainer.kill() == 0
    assert (run_dir / "trainer.log").read_text() == f"{run_dir.resolve()} False True\n"


def test_message_starts_the_run_that_is_next_and_not_the_one_it_names():
    """An interrupted run waits in its old place, with messages of later ones still in the broker before its own."""
    first, second = make_run(), make_run()
    supervise(second.pk)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == ("completed", "queued")
    Run.objects.filter(pk=second.pk).update(priority=-1)
    third = make_run()
    supervise(second.pk)
    third.refresh_from_db()
    assert third.state == "completed"
    supervise(first.pk)  # an old message
    second.refresh_from_db()
    assert second.state == "queued"


def test_run_of_many_full_spool_files_is_stored_to_the_last_word(settings):
    settings.TRAINER_COMMAND = [sys.executable, "-c", SMALL_FILES]
    run = make_run(training={"steps": 30, "train_batch_size": 4, "mini_batch_size": 4})
    trained(run)
    assert run.state == "completed"
    assert stored_seqs(run) == list(range(1, run.last_seq + 1))
    assert len(rotated(run.run_dir)) == 1


SMALL_FILES = """
import sys
from tests.support import fake_trainer
from workers.contract import spool
spool.SEGMENT_BYTES = 3000
sys.exit(fake_trainer.main(*sys.argv[1:3], sys.argv[4], False))
"""
