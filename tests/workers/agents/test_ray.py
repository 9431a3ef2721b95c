"""Agents in processes of their own under a real Ray on CPU: the same bits as in one process, and what a loss costs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from tests.support.waiting import wait_until
from tests.support.workers.endings import assert_same_end, last_records
from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.agents.messages import RolloutsMissing
from workers.agents.placement import RayMissing, place
from workers.contract.spec.run import RunSpec
from workers.contract.trainer_process import SCRATCH_NAME, _marked, start_trainer

ROOT = Path(__file__).resolve().parents[3]
CHANGES: dict[str, Any] = {
    "algorithm": {"beta": 0.01},
    "rollout": {"rollout_batch_size": 4},  # evaluations in two blocks
    "training": {"steps": 5},
    "checkpoint": {"save_steps": 2},
    "telemetry": {"alignment_interval": 2},
}


@pytest.fixture
def _ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray is here, and what a placement sets in the environment does not outlive the test."""
    pytest.importorskip("ray", reason="no Ray: pip install -c constraints.txt 'ray>=2.60,<2.61'")
    before = dict(os.environ)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield
    os.environ.clear()
    os.environ.update(before)


def trained(spec: RunSpec, run_dir: Path, attempt: int = 1) -> Path:
    train(spec, run_dir, attempt).close()
    return run_dir


def with_ray(spec: RunSpec) -> RunSpec:
    return spec.model_copy(update={"compute": spec.compute.model_copy(update={"placement": "ray"})})


@pytest.mark.full
@pytest.mark.usefixtures("_ray")
def test_two_agents_under_ray_end_as_in_one_process_bit_for_bit(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path), **CHANGES | {"training": {"steps": 3}})
    assert_same_end(trained(with_ray(spec), tmp_path / "ray"), trained(spec, tmp_path / "local"))
    assert last_records(tmp_path / "ray", "answers") == last_records(tmp_path / "local", "answers")
    assert not (tmp_path / "ray" / SCRATCH_NAME).is_symlink()  # its sockets and logs are gone


# Processes


def endless(root: Path) -> Path:
    """The run directory of a run under Ray that ends only when somebody ends it."""
    spec = make_spec(root, make_pair(root), training={"steps": 100_000}, evaluation={"eval_interval": 0})
    run_dir = root / "run"
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(with_ray(spec).to_json())
    return run_dir


def has_trained(run_dir: Path) -> bool:
    return (run_dir / "events.jsonl").exists() and bool(records(run_dir, "progress"))


@pytest.mark.full
@pytest.mark.usefixtures("_ray")
def test_stop_and_kill_leave_no_process_and_no_folder_of_its_ray(tmp_path):
    run_dir = endless(tmp_path)
    trainer = start_trainer(run_dir, 1)
    try:
        assert wait_until(lambda: has_trained(run_dir) or trainer.poll() is not None, 200, pause_s=0.1)
        assert len(_marked(trainer._mark)) > 4  # trainer, Ray's own, two agents
        scratch = (run_dir / SCRATCH_NAME).readlink()
        assert scratch.is_dir()
        trainer.request_stop()
        assert wait_until(lambda: trainer.poll() is not None, 60, pause_s=0.1)
        assert records(run_dir, "finished")[-1]["outcome"] == "stopped"
    finally:
        status = trainer.kill()
    assert status == 0
    assert _marked(trainer._mark) == []
    assert not scratch.exists()

    again = start_trainer(run_dir, 2)
    try:
        before = len(records(run_dir, "progress"))
        assert wait_until(
            lambda: len(records(run_dir, "progress")) > before or again.poll() is not None, 200, pause_s=0.1
        )
        scratch = (run_dir / SCRATCH_NAME).readlink()
        os.kill(again.pid, signal.SIGKILL)
    finally:
        status = again.kill()
    assert status == -signal.SIGKILL
    assert _marked(again._mark) == []
    assert not scratch.exists()


LISTENING = "0A"  # /proc/net/tcp's word


@pytest.mark.full
@pytest.mark.usefixtures("_ray")
def test_its_own_ray_listens_on_the_loopback_interface_only(tmp_path):
    run_dir = endless(tmp_path)
    trainer = start_trainer(run_dir, 1)
    try:
        assert wait_until(lambda: has_trained(run_dir) or trainer.poll() is not None, 200, pause_s=0.1)
        inodes = {link for pid in _marked(trainer._mark) for link in sockets_of(pid)}
        found = [
            line.split()[1].rpartition(":")[0]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            if line.split()[3] == LISTENING and f"socket:[{line.split()[9]}]" in inodes
        ]
    finally:
        trainer.kill()
    assert len(found) > 3
    assert set(found) <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, plain and mapped


def sockets_of(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            yield str(link.readlink())
        except OSError:
            continue


# Clusters

HOSTS = """
set -e
for n in 1 2; do
  ip netns add "$0-$n"; ip -n "$0-$n" link set lo up
done
ip -n "$0-1" link add wire type veth peer name wire netns "$0-2"
for n in 1 2; do
  ip -n "$0-$n" addr add "10.213.0.$n/24" dev wire; ip -n "$0-$n" link set wire up
done
"""
NODE = ["--num-cpus=1", "--disable-usage-stats", "--object-store-memory=100000000"]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[list[str]]]:
    """Two "hosts", as the beginning of a command that is run on each: namespaces with a network of their own."""
    name = f"hacrl{os.getpid()}"
    try:
        made = subprocess.run(["bash", "-c", HOSTS, name], capture_output=True, text=True, timeout=120)
        if made.returncode:
            pytest.skip(f"two hosts need network namespaces: {made.stderr.strip()[-200:]}")
        yield [["ip", "netns", "exec", f"{name}-{number}"] for number in (1, 2)]
    except FileNotFoundError as missing:
        pytest.skip(f"two hosts need network namespaces: {missing}")
    finally:
        if shutil.which("ip"):
            for host in (f"{name}-1", f"{name}-2"):
                inside = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, timeout=120)
                subprocess.run(["kill", "-9", *inside.stdout.split()], capture_output=True, timeout=120)
                subprocess.run(["ip", "netns", "delete", host], capture_output=True, timeout=120)


@pytest.mark.full
@pytest.mark.usefixtures("_ray")
def test_agents_on_two_hosts_of_a_cluster_end_as_in_one_process(tmp_path, hosts, monkeypatch):
    spec = make_spec(tmp_path, make_pair(tmp_path), **CHANGES | {"training": {"steps": 3}})
    expected, run_dir = trained(spec, tmp_path / "local"), tmp_path / "ray"
    run_dir.mkdir()
    (tmp_path / "spec.json").write_text(with_ray(spec).to_json())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_TOKEN": "ab" * 32, "RAY_AUTH_MODE": "token"}
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    head = ["--head", "--include-dashboard=false", "--node-ip-address=10.213.0.1", "--port=6399"]
    head += [f"--temp-dir=/tmp/r{os.getpid()}"]
    code = "import sys; from tests.support.workers.tiny import *; spec, run = map(Path, sys.argv[1:]);"
    code += "train(RunSpec.from_file(spec), run).close()"
    nodes = []
    try:
        for host, arguments in zip(
            hosts, (head, ["--address=10.213.0.1:6399", "--node-ip-address=10.213.0.2"]), strict=True
        ):
            nodes.append(subprocess.Popen([*host, *start, *NODE, *arguments], env=environment))
            time.sleep(15)
        done = subprocess.run(
            [*hosts[0], sys.executable, "-c", code, str(tmp_path / "spec.json"), str(run_dir)],
            env=environment | {"RAY_ADDRESS": "10.213.0.1:6399"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
    finally:
        for node in nodes:
            node.kill()  # what it has started ends with its network
            node.wait()
        shutil.rmtree(f"/tmp/r{os.getpid()}", ignore_errors=True)
    assert records(run_dir, "started")[0]["device"] == "cpu on 2 nodes"
    assert_same_end(run_dir, expected)


# Refusals


def test_run_with_ray_where_it_is_not_installed_is_refused_with_advice(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "workers.agents.ray_placement", raising=False)
    spec = with_ray(make_spec(tmp_path, make_pair(tmp_path)))
    with pytest.raises(RayMissing, match=r"Ray is not installed on this host: run .*ray.*; or choose local"):
        place(spec, tmp_path)


@pytest.mark.usefixtures("_ray")
def test_node_that_does_not_see_the_run_directory_is_refused(tmp_path):
    from workers.agents.ray_placement import MARK_NAME, NotShared, _check_mark

    with pytest.raises(NotShared, match="must lie on a shared file system, at the same path on every node"):
        _check_mark(tmp_path, "mine")
    (tmp_path / MARK_NAME).write_text("of another run")
    with pytest.raises(NotShared):
        _check_mark(tmp_path, "mine")
    (tmp_path / MARK_NAME).write_text("mine")
    _check_mark(tmp_path, "mine")


@pytest.mark.usefixtures("_ray")
def test_agent_reserves_gpus_only_where_it_trains_on_them(tmp_path):
    from workers.agents.ray_placement import gpus_of_agent

    def reserved(there: float, **compute: Any) -> float:
        spec = make_spec(tmp_path, [{"name": "A", "model": "-"}], compute={"device": "auto", **compute})
        return gpus_of_agent(spec, there)

    assert reserved(0.0) == 0.0
    assert reserved(4.0) == 1.0
    assert reserved(4.0, device="cpu") == 0.0
    assert reserved(0.0, device="cuda", gpus_per_agent=2) == 2.0  # nothing is there: the placement says so
    assert reserved(4.0, gpus_per_agent=0.5) == 0.5
    assert reserved(4.0, processes_per_agent=2) == 2.0  # each process wants its own


def test_agents_have_whole_gpus_or_a_share_of_one(tmp_path):
    with pytest.raises(ValueError, match="above 1 only whole numbers"):
        make_spec(tmp_path, [{"name": "A", "model": "-"}], compute={"gpus_per_agent": 1.5})


@pytest.mark.usefixtures("_ray")
@pytest.mark.parametrize(
    "raised", [RolloutsMissing("out of memory"), OSError(28, "No space left on device"), SafetensorError("I/O error")]
)
def test_what_an_agent_raises_is_raised_as_it_was(monkeypatch, raised):
    import ray
    from ray.exceptions import RayTaskError

    from workers.agents.ray_placement import answer_of

    def failed(_: object) -> None:
        raise RayTaskError("ask", "its traceback", raised).as_instanceof_cause()

    monkeypatch.setattr(ray, "get", failed)
    with pytest.raises(type(raised)) as caught:
        answer_of("A", None)
    assert caught.value is raised
    assert str(caught.value) == str(raised)  # without the traceback of another process


def test_dead_process_of_an_agent_is_a_lost_agent(monkeypatch):
    import ray
    from ray.exceptions import RayActorError

    from workers.agents.messages import AgentLost
    from workers.agents.ray_placement import answer_of

    def dead(_: object) -> None:
        raise RayActorError

    monkeypatch.setattr(ray, "get", dead)
    with pytest.raises(AgentLost, match="agent A"):
        answer_of("A", None)
