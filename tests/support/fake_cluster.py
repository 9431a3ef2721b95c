"""Stand-ins for schedulers, on this machine: srun, squeue and scancel for a PATH, and a small Kubernetes API.

A job is a process in a session of its own that knows nothing of who submitted it, like one on another node: it outlives
its srun, and only scancel, or deleting its Job, ends it. Files beside the jobs change what a stand-in does:
  broken: scancel and DELETE do nothing and every job counts as running, like a node that nobody reaches
  full: no job begins    away: the scheduler answers nobody    same-host: the node of srun is the worker's host
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_server import Handler, http_server
from workers.contract.repository import ROOT
from workers.contract.trainer_process import MARK_VARIABLE

SRUN = """
    import os, subprocess, sys, time
    name = next(word.partition("=")[2] for word in sys.argv if word.startswith("--job-name="))
    command = sys.argv[1:]
    while command[0].startswith("--"):
        option = command.pop(0)
        assert option in ("--ntasks=1", "--export=ALL", f"--job-name={name}", "--partition=a100"), option
    variables = dict(os.environ)
    if MARK in variables and not os.path.exists(os.path.join(STATE, "same-host")):
        variables[MARK] = "of another host: " + variables[MARK]  # the worker's host does not see it there
    if os.path.exists(os.path.join(STATE, "full")):
        while os.path.exists(os.path.join(STATE, "full")):
            time.sleep(0.05)
    job = subprocess.Popen(command, env=variables, start_new_session=True, stdin=subprocess.DEVNULL)
    open(os.path.join(STATE, f"{name}.{job.pid}"), "w").close()
    sys.exit(abs(job.wait()))
"""
SQUEUE = """
    import sys
    name = next(word.partition("=")[2] for word in sys.argv if word.startswith("--name="))
    for pid in pids_of(STATE, name):
        print("RUNNING")
"""
SCANCEL = """
    import sys
    name = next(word.partition("=")[2] for word in sys.argv if word.startswith("--name="))
    cancel(STATE, name)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pids_of(state: str, name: str) -> list[int]:
    """The living jobs of a name."""
    pids = [int(path.suffix[1:]) for path in Path(state).glob(f"{name}.*")]
    return [pid for pid in pids if is_alive(pid)]


def cancel(state: str, name: str) -> None:
    if not (Path(state) / "broken").exists():
        for pid in pids_of(state, name):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def put_slurm_on_path(folder: Path) -> tuple[Path, Path]:
    """Returns the folder for PATH, and that of the jobs."""
    programs, state = folder / "bin", folder / "slurm"
    programs.mkdir()
    state.mkdir()
    head = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    head += f"from tests.support.fake_cluster import cancel, pids_of\nSTATE = {str(state)!r}\n"
    head += f"MARK = {MARK_VARIABLE!r}\n"
    away = "import os\nif os.path.exists(os.path.join(STATE, 'away')): sys.exit('Unable to contact slurm controller')\n"
    for name, code in (
        ("srun", SRUN),
        ("squeue", away + textwrap.dedent(SQUEUE)),
        ("scancel", away + textwrap.dedent(SCANCEL)),
    ):
        (programs / name).write_text(head + textwrap.dedent(code))
        (programs / name).chmod(0o755)
    return programs, state


class KubernetesStub:
    """Jobs, pods and secrets of one namespace; each Job's container is a process here."""

    def __init__(self, state: Path) -> None:
        self.state, self.requests, self.refusal = state, [], 0
        self.jobs: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.secrets: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def post(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        if kind == "secrets":
            self.secrets[name] = body
            return body
        self.jobs[name] = body
        container = body["spec"]["template"]["spec"]["containers"][0]
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HACRL_FAKE_STEP_S": "0.02"}
        for one in container.get("env", ()):
            reference = one.get("valueFrom", {}).get("secretKeyRef")
            variables[one["name"]] = (
                self.secrets[reference["name"]]["stringData"][reference["key"]] if reference else one["value"]
            )
        command = [*container["command"], *container["args"]]
        threading.Thread(target=self._begin, args=[name, command, variables], daemon=True).start()
        return body

    def _begin(self, name: str, command: list[str], variables: dict[str, str]) -> None:
        """Start the pod's process once there is a place, unless the Job was deleted meanwhile."""
        while (self.state / "full").exists():
            time.sleep(0.05)
        with self._lock:
            if name in self.jobs:
                self.processes[name] = subprocess.Popen(command, env=variables, start_new_session=True)

    def named(self, label: str) -> list[str]:
        return [name for name, job in self.jobs.items() if job["metadata"]["labels"]["hacrl-run"] == label]

    def items(self, kind: str, label: str) -> list[dict[str, Any]]:
        if kind == "jobs":
            return [self.jobs[name] | {"status": {}} for name in self.named(label)]
        phases = {None: "Running", 0: "Succeeded"}
        processes = [self.processes.get(name) for name in self.named(label)]
        states = ["Pending" if one is None else phases.get(one.poll(), "Failed") for one in processes]
        return [{"status": {"phase": state}} for state in states]

    def delete(self, kind: str, label: str) -> None:
        if (self.state / "broken").exists():
            return
        if kind == "secrets":
            self.secrets = {
                name: one for name, one in self.secrets.items() if one["metadata"]["labels"]["hacrl-run"] != label
            }
            return
        with self._lock:
            for name in self.named(label):
                if process := self.processes.get(name):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                if kind == "pods":
                    self.processes.pop(name, None)
                    del self.jobs[name]


@contextlib.contextmanager
def kubernetes_api(state: Path) -> Iterator[tuple[KubernetesStub, str]]:
    """A stub and its address."""
    stub = KubernetesStub(state)

    class Answers(Handler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            stub.requests.append((self.command, parts.path, self.headers.get("Authorization")))
            kind = re.fullmatch(r"/(?:api|apis/batch)/v1/namespaces/lab/(\w+)", parts.path)
            label = parse_qs(parts.query).get("labelSelector", ["="])[0].partition("=")[2]
            body = json.loads(self.body() or b"{}")
            status, values = 200, {}
            if (state / "away").exists():
                status = 503
            elif stub.refusal or kind is None:
                status, values = stub.refusal or 404, {"message": "forbidden by the stub"}
            elif self.command == "POST":
                values = stub.post(kind[1], body)
            elif self.command == "DELETE":
                stub.delete(kind[1], label)
            else:
                values = {"items": stub.items(kind[1], label)}
            self.reply(status, json.dumps(values).encode())

        do_GET = do_POST = do_DELETE = answer

    try:
        with http_server(Answers) as address:
            yield stub, address
    finally:
        for process in stub.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
