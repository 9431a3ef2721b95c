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
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops.trainer_place import trainer_command
from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.tasks import supervise
from tests.support.fake_cluster import is_alive, kubernetes_api, put_slurm_on_path
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run
from tests.web.runs.worker.test_supervisor import assert_nothing_left, changes, during, is_running
from workers.cluster.control import NODE, Silence, read_note
from workers.cluster.kubernetes import job_of, read_template
from workers.contract.repository import ROOT
from workers.contract.trainer_process import JOB_NAME, RunDirBusy, lock_run_dir

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


def test_stop_reaches_the_trainer_on_its_node_and_it_saves_a_checkpoint(slurm):
    run = make_run(training={"steps": 5000, "train_batch_size": 4, "mini_batch_size": 4})
    thread = during(run, lambda: is_running(run), lambda: Run.objects.get(pk=run.pk).request_stop())
    assert supervise(run.pk)
    thread.join()
    run.refresh_from_db()
    assert run.state == "stopped"
    assert "killed" not in run.reason
    assert run.events.filter(type="checkpoint").exists()
    assert_nothing_left(run)


def test_trainer_that_is_killed_on_its_node_is_a_dead_trainer_and_the_run_continues(slurm):
    run = make_run(name="killed@3", checkpoint={"save_steps": 1})
    assert supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.interruptions) == ("queued", 1)
    assert "SIGKILL" in run.reason
    assert_nothing_left(run)


@pytest.mark.full
def test_job_that_vanishes_is_a_dead_trainer(slurm, monkeypatch):
    run = make_run(training={"steps": 5000, "train_batch_size": 4, "mini_batch_size": 4})

    def lose_the_node() -> None:
        [path] = slurm.glob("hacrl-*")
        os.killpg(int(path.suffix[1:]), signal.SIGKILL)

    thread = during(run, lambda: is_running(run), lose_the_node)
    assert supervise(run.pk)
    thread.join()
    run.refresh_from_db()
    assert (run.state, run.interruptions) == ("queued", 1)
    assert "without a status" in run.reason
    assert processes_with(run) == []


@pytest.mark.full
def test_job_that_waits_for_resources_is_cancelled_by_a_stop(slurm):
    (slurm / "full").touch()
    run = make_run()

    def has_submitted() -> bool:
        return (run.run_dir / JOB_NAME).exists()

    thread = during(run, has_submitted, lambda: Run.objects.get(pk=run.pk).request_stop())
    assert supervise(run.pk)
    thread.join()
    run.refresh_from_db()
    assert run.state == "stopped"
    (slurm / "full").unlink()
    assert wait_until(lambda: processes_with(run) == [])


def supervisor_process(run_dir: Path, attempt: int) -> subprocess.Popen[bytes]:
    """A process that starts the trainer as a supervisor does, and stays."""
    code = (
        "import json, sys, time; from pathlib import Path;"
        "from workers.contract.trainer_process import start_trainer;"
        f"start_trainer(Path({str(run_dir)!r}), {attempt}, command={trainer_command()!r}); time.sleep(600)"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)


def is_free(run_dir: Path) -> bool:
    """Whether no launcher holds the run directory."""
    try:
        os.close(lock_run_dir(run_dir))
    except RunDirBusy:
        return False
    return True


@pytest.mark.full
@pytest.mark.parametrize("is_cut_off", [False, True], ids=["scheduler answers", "scheduler reaches nobody"])
def test_killed_supervisor_leaves_no_trainer_beside_the_next_one(slurm, is_cut_off):
    """I1: the trainers of two attempts never live together, even if the old one cannot be cancelled."""
    run = make_run(training={"steps": 5000, "train_batch_size": 4, "mini_batch_size": 4})
    run.run_dir.mkdir(parents=True)
    (run.run_dir / "spec.json").write_text(json.dumps(run.spec))
    emitted = run.run_dir / "emitted.txt"

    def attempts() -> set[str]:
        return {line.split()[1] for line in emitted.read_text().splitlines()} if emitted.exists() else set()

    first = supervisor_process(run.run_dir, 1)
    assert wait_until(lambda: "1" in attempts(), 30)
    old = trainers_of(run)
    assert len(old) == 1
    if is_cut_off:
        (slurm / "broken").touch()
    first.kill()
    first.wait()
    if not is_cut_off:
        assert wait_until(lambda: not any(map(is_alive, old)), 10)
    assert wait_until(lambda: is_free(run.run_dir), 30)  # no worker claims the run before
    second = supervisor_process(run.run_dir, 2)
    try:
        deadline = time.monotonic() + 60
        while "2" not in attempts() and time.monotonic() < deadline:
            assert len(trainers_of(run)) <= 1
            time.sleep(0.02)
        assert "2" in attempts()
        assert not any(map(is_alive, old))
        assert read_note(run.run_dir / NODE)["attempt"] == 2
    finally:
        (slurm / "broken").unlink(missing_ok=True)
        second.kill()
        second.wait()
    assert wait_until(lambda: processes_with(run) == [], 20)


@pytest.mark.full
def test_run_is_trained_by_a_kubernetes_job_to_its_end(settings, tmp_path, monkeypatch):
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
        run = make_run()
        assert supervise(run.pk)
        run.refresh_from_db()
        assert changes(run) == ["queued", "starting", "running", "completed"]
        assert_nothing_left(run)
        assert list(stub.jobs) == [f"hacrl-{run.pk}-1"]
        assert {token for _, _, token in stub.requests} == {"Bearer t0ken"}

        stopped = make_run(training={"steps": 5000, "train_batch_size": 4, "mini_batch_size": 4})
        thread = during(stopped, lambda: is_running(stopped), lambda: os.killpg(
            stub.processes[f"hacrl-{stopped.pk}-1"].pid, signal.SIGKILL))  # fmt: skip
        assert supervise(stopped.pk)
        thread.join()
        stopped.refresh_from_db()
        assert (stopped.state, stopped.interruptions) == ("queued", 1)
        assert "without a status" in stopped.reason
        assert processes_with(stopped) == []

        stopped.request_stop()
        stub.refusal = 403
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


def test_silence_counts_changes_by_its_own_clock_and_a_late_look_as_a_short_one():
    now = [0.0]
    silence = Silence(lambda: now[0])
    assert silence.note(1) == 0
    for seconds, value, expected in ((1, 1, 1), (1, 1, 2), (500, 1, 4), (1, 2, 0), (1, 2, 1)):
        now[0] += seconds
        assert silence.note(value) == expected


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
