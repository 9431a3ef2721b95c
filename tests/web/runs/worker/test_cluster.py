"""Trainers as jobs of Slurm and Kubernetes, supervised to their end: against stand-ins (tests/support/fake_cluster.py).

A job of a stand-in is a process of this machine that outlives its launcher, so what would be left behind is seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops.trainer_place import trainer_command
from hacrl_web.runs.models import Run, State, Worker
from hacrl_web.runs.worker.dispatcher import Dispatcher
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.left_jobs import RETRY_S, LeftJobs
from hacrl_web.runs.worker.tasks import supervise
from tests.support.fake_cluster import KubernetesStub, is_alive, kubernetes_api, pids_of, put_slurm_on_path
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run
from tests.web.runs.worker.test_supervisor import assert_nothing_left, changes, during, is_running
from workers.cluster.control import NODE, ChangeTimer
from workers.cluster.kubernetes import job_of, read_template
from workers.contract.cluster.job import JOB_NAME, MARGIN_S, TASK_LEASE_S, read_note
from workers.contract.repository import ROOT
from workers.contract.trainer_process import RunDirBusy, lock_run_dir

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once, pytest.mark.slow]
FAKE = json.dumps([sys.executable, "-m", "tests.support.fake_trainer"])
TEMPLATE = """
apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - {name: trainer, image: hacrl-worker, env: [{name: HF_HOME, value: /data/hub}]}
"""


@pytest.fixture
def slurm(settings, tmp_path, monkeypatch) -> Path:
    """The folder of the jobs of a stand-in for Slurm, where runs are trained."""
    programs, state = put_slurm_on_path(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HACRL_TRAINER_PLACE", "slurm")
    monkeypatch.setenv("HACRL_SLURM_OPTIONS", "--partition=a100")
    monkeypatch.setenv("HACRL_TRAINER_COMMAND", FAKE)
    monkeypatch.setenv("HACRL_FAKE_STEP_S", "0.02")
    settings.TRAINER_COMMAND = trainer_command()
    yield state
    for path in state.glob("hacrl-*"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(path.suffix[1:]), signal.SIGKILL)


@pytest.fixture
def kubernetes(settings, tmp_path, monkeypatch) -> KubernetesStub:
    """A stand-in for the API of Kubernetes, where runs are trained."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t0ken")
    (tmp_path / "job.yaml").write_text(TEMPLATE)
    with kubernetes_api(tmp_path) as (stub, address):
        for name, value in {
            "TRAINER_PLACE": "kubernetes", "KUBERNETES_JOB": tmp_path / "job.yaml", "KUBERNETES_API": address,
            "KUBERNETES_NAMESPACE": "lab", "TRAINER_COMMAND": FAKE,
        }.items():  # fmt: skip
            monkeypatch.setenv(f"HACRL_{name}", str(value))
        settings.TRAINER_COMMAND = [*trainer_command(), f"--account={account}"]
        yield stub


@dataclass
class Cluster:
    """state: the folder of the files that change what the stand-in does."""

    state: Path
    stub: KubernetesStub | None = None

    def jobs(self, run: Run) -> list[int]:
        """The processes that the jobs of a run have begun with, living."""
        if self.stub is None:
            return pids_of(str(self.state), f"hacrl-{run.pk}")
        return [one.pid for one in self.stub.processes.values() if one.poll() is None]

    @property
    def num_keys(self) -> int:
        return len(self.stub.secrets) if self.stub else 0


@pytest.fixture(params=["slurm", pytest.param("kubernetes", marks=pytest.mark.full)])
def cluster(request, tmp_path) -> Cluster:
    one = request.getfixturevalue(request.param)
    return Cluster(one) if request.param == "slurm" else Cluster(tmp_path, one)


def processes_with(run: Run) -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(run.run_dir).encode() in path.read_bytes() and is_alive(int(path.parent.name)):
                pids.append(int(path.parent.name))
    return pids


def trainers_of(run: Run) -> set[int]:
    """The processes of the trainer itself, without launcher and task."""
    pids = set()
    for pid in processes_with(run):
        with contextlib.suppress(OSError):
            if b"-m\0tests.support.fake_trainer\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                pids.add(pid)
    return pids


def test_run_is_trained_by_srun_to_its_end(slurm):
    run = make_run()
    assert supervise(run.pk)
    run.refresh_from_db()
    assert changes(run) == ["queued", "starting", "running", "completed"]
    assert_nothing_left(run)
    assert not (run.run_dir / JOB_NAME).exists()
    assert f"job hacrl-{run.pk} is submitted" in (run.run_dir / "trainer.log").read_text()


def test_stop_reaches_the_trainer_on_its_node_and_it_saves_a_checkpoint(cluster):
    run = make_run(training={"steps": 5000, "train_batch_size": 4, "mini_batch_size": 4})
    thread = during(run, lambda: is_running(run), lambda: Run.objects.get(pk=run.pk).request_stop())
    assert supervise(run.pk)
    thread.join()
    run.refresh_from_db()
    assert run.state == "stopped"
    assert "killed" not in run.reason
    assert run.events.filter(type="checkpoint").exists()
    assert_nothing_left(run)


def test_trainer_that_is_killed_on_its_node_is_a_dead_trainer_and_the_run_continues(cluster):
    run = make_run(name="killed@3", checkpoint={"save_steps": 1})
    assert supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.interruptions) == ("queued", 1)
    assert "SIGKILL" in run.reason
    assert_nothing_left(run)


@pytest.mark.full
def test_job_that_vanishes_is_a_dead_trainer(cluster):
    run = make_run(training={"steps": 5000, "train_batch_size": 4, "mini_batch_size": 4})

    def lose_the_node() -> None:
        [pid] = cluster.jobs(run)
        os.killpg(pid, signal.SIGKILL)

    thread = during(run, lambda: is_running(run), lose_the_node)
    assert supervise(run.pk)
    thread.join()
    run.refresh_from_db()
    assert (run.state, run.interruptions) == ("queued", 1)
    assert "without a status" in run.reason
    assert processes_with(run) == []


@pytest.mark.full
def test_job_that_waits_for_resources_is_cancelled_by_a_stop(cluster):
    (cluster.state / "full").touch()
    run = make_run()

    def has_submitted() -> bool:
        return (run.run_dir / JOB_NAME).exists()

    thread = during(run, has_submitted, lambda: Run.objects.get(pk=run.pk).request_stop())
    assert supervise(run.pk)
    thread.join()
    run.refresh_from_db()
    assert run.state == "stopped"
    (cluster.state / "full").unlink()
    assert wait_until(lambda: processes_with(run) == [])


def claimed_run() -> Run:
    """A run that a worker of another host has claimed, with its folder."""
    run = make_run(training={"steps": 5000, "train_batch_size": 4, "mini_batch_size": 4})
    assert Run.objects.claim(run.pk, Worker("another host", 1, 0.0, data_folder_id()))
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "spec.json").write_text(json.dumps(run.spec))
    run.refresh_from_db()
    return run


def supervisor_process(run_dir: Path, attempt: int, command: list[str]) -> subprocess.Popen[bytes]:
    """A process that starts the trainer as a supervisor does, with a judge's key, and stays."""
    code = (
        "import json, sys, time; from pathlib import Path;"
        "from workers.contract.trainer_process import start_trainer;"
        f"start_trainer(Path({str(run_dir)!r}), {attempt}, command={command!r}, keys={{'helpful': 'k3y'}});"
        "time.sleep(600)"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)


def kill_with_launcher(supervisor: subprocess.Popen[bytes]) -> None:
    """Neither sees the other die, as if their host had lost its power."""
    [launcher] = psutil.Process(supervisor.pid).children()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (supervisor.pid, launcher.pid):
            os.kill(pid, number)
    supervisor.wait()
    assert wait_until(lambda: not is_alive(launcher.pid))


def is_free(run_dir: Path) -> bool:
    """Whether no launcher holds the run directory."""
    try:
        os.close(lock_run_dir(run_dir))
    except RunDirBusy:
        return False
    return True


def attempts_of(run: Run) -> set[str]:
    """Those that have emitted an event."""
    emitted = run.run_dir / "emitted.txt"
    return {line.split()[1] for line in emitted.read_text().splitlines()} if emitted.exists() else set()


@pytest.mark.full
@pytest.mark.parametrize("is_cut_off", [False, True], ids=["scheduler answers", "scheduler reaches nobody"])
@pytest.mark.parametrize("is_sudden", [False, True], ids=["supervisor", "supervisor and launcher"])
def test_killed_supervisor_leaves_no_trainer_beside_the_next_one(cluster, settings, is_cut_off, is_sudden):
    """I1: the trainers of two attempts never live together, even if the old one cannot be cancelled."""
    run = claimed_run()
    first = supervisor_process(run.run_dir, 1, settings.TRAINER_COMMAND)
    assert wait_until(lambda: "1" in attempts_of(run), 30)
    old = trainers_of(run)
    assert len(old) == 1
    if is_cut_off:
        (cluster.state / "broken").touch()
    if is_sudden:
        kill_with_launcher(first)
    else:
        first.kill()
        first.wait()
        assert is_cut_off or wait_until(lambda: not any(map(is_alive, old)), 10)
    assert wait_until(lambda: is_free(run.run_dir), 30)  # no worker claims the run before
    second = supervisor_process(run.run_dir, 2, settings.TRAINER_COMMAND)
    try:
        deadline = time.monotonic() + 60
        while "2" not in attempts_of(run) and time.monotonic() < deadline:
            assert len(trainers_of(run)) <= 1
            time.sleep(0.02)
        assert "2" in attempts_of(run)
        assert not any(map(is_alive, old))
        assert read_note(run.run_dir / NODE)["attempt"] == 2
    finally:
        (cluster.state / "broken").unlink(missing_ok=True)
        second.kill()
        second.wait()
    assert wait_until(lambda: processes_with(run) == [], 20)
    assert cluster.num_keys == 0


@pytest.mark.parametrize("is_waiting", [False, pytest.param(True, marks=pytest.mark.full)], ids=["runs", "waits"])
def test_job_of_a_stopped_run_ends_with_its_keys_though_supervisor_and_launcher_are_dead(cluster, settings, is_waiting):
    run = claimed_run()
    if is_waiting:
        (cluster.state / "full").touch()
    first = supervisor_process(run.run_dir, 1, settings.TRAINER_COMMAND)
    log = run.run_dir / "trainer.log"
    has_submitted = lambda: log.exists() and "is submitted" in log.read_text()  # noqa: E731
    assert wait_until(has_submitted if is_waiting else lambda: attempts_of(run), 30)
    assert bool(cluster.num_keys) == bool(cluster.stub)
    kill_with_launcher(first)
    run.request_stop("stopped by ada")
    run.transition_to(State.LOST, reason="silent", attempt=1)
    dispatcher, left_jobs = Dispatcher(), LeftJobs()
    dispatcher.requeue_lost_runs()
    run.refresh_from_db()
    assert run.state == "lost"  # until its job has ended

    def has_ended() -> bool:
        left_jobs.look()
        dispatcher.requeue_lost_runs()
        run.refresh_from_db()
        return run.state == "stopped"

    assert wait_until(has_ended, 20, 0.1)
    assert not (run.run_dir / JOB_NAME).exists()
    assert cluster.num_keys == 0
    if is_waiting:
        (cluster.state / "full").unlink()
        assert wait_until(lambda: processes_with(run) == [])
        assert attempts_of(run) == set()
    else:
        assert_nothing_left(run)


@pytest.mark.full
def test_job_is_told_to_end_by_the_dispatcher_and_cancelled_once_the_scheduler_is_back(cluster, settings):
    run, now = claimed_run(), [0.0]
    first = supervisor_process(run.run_dir, 1, settings.TRAINER_COMMAND)
    assert wait_until(lambda: attempts_of(run), 30)
    trainers = trainers_of(run)
    (cluster.state / "away").touch()
    kill_with_launcher(first)
    run.request_stop("stopped by ada")
    run.transition_to(State.LOST, reason="silent", attempt=1)
    dispatcher, left_jobs = Dispatcher(lambda: now[0]), LeftJobs(lambda: now[0])
    dispatcher.requeue_lost_runs()
    assert wait_until(lambda: not any(map(is_alive, trainers)), TASK_LEASE_S / 6)
    now[0] += TASK_LEASE_S + MARGIN_S
    dispatcher.requeue_lost_runs()
    run.refresh_from_db()
    assert run.state == "lost"
    now[0] += 1
    dispatcher.requeue_lost_runs()
    run.refresh_from_db()
    assert run.state == "stopped"
    assert_nothing_left(run)
    left_jobs.look()
    assert left_jobs._process.wait(30) == 1
    assert (run.run_dir / JOB_NAME).exists()
    (cluster.state / "away").unlink()
    left_jobs.look()
    assert left_jobs._process is None  # not at once again
    now[0] += RETRY_S
    left_jobs.look()
    assert left_jobs._process.wait(30) == 0
    assert not (run.run_dir / JOB_NAME).exists()
    assert cluster.num_keys == 0


@pytest.mark.full
def test_scheduler_that_is_away_costs_a_run_nothing(cluster, monkeypatch):
    """It is away until after the end; the keys, which it alone can remove, go once it is back."""
    monkeypatch.setattr("hacrl_web.runs.worker.supervisor.judge_keys", lambda *_: {"helpful": "k3y"})
    run = make_run(training={"steps": 600, "train_batch_size": 4, "mini_batch_size": 4})
    thread = during(run, lambda: is_running(run), lambda: (cluster.state / "away").touch())
    assert supervise(run.pk)
    thread.join()
    run.refresh_from_db()
    assert changes(run) == ["queued", "starting", "running", "completed"]
    assert_nothing_left(run)
    log = (run.run_dir / "trainer.log").read_text()
    assert ("refuses GET pods (503)" in log) == bool(cluster.stub)  # where srun runs, nobody asks squeue
    (cluster.state / "away").unlink()
    assert (run.run_dir / JOB_NAME).exists() == bool(cluster.num_keys) == bool(cluster.stub)
    left_jobs = LeftJobs()
    left_jobs.look()
    if left_jobs._process:
        assert left_jobs._process.wait(30) == 0
    assert not (run.run_dir / JOB_NAME).exists()
    assert cluster.num_keys == 0


def test_job_on_the_host_of_its_worker_ends_as_one_elsewhere(slurm):
    """There it has the mark of the launcher, which `srun --export=ALL` passes on."""
    (slurm / "same-host").touch()
    run = make_run()
    assert supervise(run.pk)
    run.refresh_from_db()
    assert changes(run) == ["queued", "starting", "running", "completed"]
    assert_nothing_left(run)


@pytest.mark.full
def test_run_is_trained_by_a_kubernetes_job_to_its_end(kubernetes):
    run = make_run()
    assert supervise(run.pk)
    run.refresh_from_db()
    assert changes(run) == ["queued", "starting", "running", "completed"]
    assert_nothing_left(run)
    assert list(kubernetes.jobs) == [f"hacrl-{run.pk}-1"]
    assert {token for _, _, token in kubernetes.requests} == {"Bearer t0ken"}
    kubernetes.refusal = 403
    refused = make_run()
    assert supervise(refused.pk)
    refused.refresh_from_db()
    assert "forbidden by the stub" in refused.reason


def test_job_of_a_template_has_its_command_name_and_labels_and_starts_once(tmp_path):
    (tmp_path / "job.yaml").write_text(TEMPLATE)
    template = read_template(tmp_path / "job.yaml")
    job = job_of(template, "hacrl-1", "hacrl-1-2", ["python", "-m", "workers.cluster"], has_keys=True)
    pod = job["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert job["metadata"] == {"name": "hacrl-1-2", "labels": {"hacrl-run": "hacrl-1"}}
    assert pod["metadata"]["labels"] == {"hacrl-run": "hacrl-1"}
    assert (job["spec"]["backoffLimit"], pod["spec"]["restartPolicy"]) == (0, "Never")
    assert container["command"] == ["python", "-m", "workers.cluster"]
    assert [one["name"] for one in container["env"]] == ["HF_HOME", "HACRL_CLUSTER_KEYS"]
    assert "metadata" not in template
    for text in ("", "kind: Pod", "[1]", "kind: Job\nspec: {template: {spec: {containers: []}}}", "a: [b"):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(ValueError, match="no template of a Kubernetes Job"):
            read_template(tmp_path / "bad.yaml")


def test_timer_counts_changes_by_its_own_clock_and_a_late_look_as_a_short_one():
    now = [0.0]
    timer = ChangeTimer(lambda: now[0])
    assert timer.seconds_unchanged(1) == 0
    for seconds, value, expected in ((1, 1, 1), (1, 1, 2), (500, 1, 4), (1, 2, 0), (1, 2, 1)):
        now[0] += seconds
        assert timer.seconds_unchanged(value) == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TRAINER_PLACE": "moon"}, "give local, slurm or kubernetes"),
        ({"TRAINER_PLACE": "kubernetes"}, "HACRL_KUBERNETES_JOB"),
        ({"TRAINER_PLACE": "kubernetes", "KUBERNETES_JOB": __file__, "KUBERNETES_API": "file:///x"}, "https address"),
    ],
)
def test_unusable_places_are_refused_at_the_start(monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(f"HACRL_{name}", value)
    with pytest.raises(ImproperlyConfigured, match=message):
        trainer_command()
