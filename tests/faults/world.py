"""A whole product of its own: `up` with web, worker, dispatcher, proxies before Redis and database, fake trainers.

Everything lies in one short folder below /tmp, listens on unix sockets and a free port, and is removed at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

import psutil
import redis

from hacrl_web.ops import preflight
from hacrl_web.ops.processes import is_alive
from tests.faults.apps import crash_file
from tests.faults.browsers import Browsers
from tests.faults.invariants import TERMINAL, Monitor, Violation, check_run, ledger, processes_of, trainers
from tests.faults.proxy import Proxy
from tests.faults.records import Database
from tests.support.postgres import private_postgresql

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0  # of a condition that a loaded machine may take long to reach; no promise of the product
TOKEN = "a" * 32  # the CSRF cookie and its header: any text, if they are the same


class TooLate(AssertionError):
    """A condition that did not come true."""


def wait(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S, pause_s: float = 0.05) -> Any:
    """Check until it is true; returns the result. Error: TooLate."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TooLate(f"{what}: not within {seconds:g} s")
        time.sleep(pause_s)


@dataclass
class Answer:
    """Of the web: status, text, and how long it took."""

    status: int
    text: str
    seconds: float

    @property
    def body(self) -> Any:
        return json.loads(self.text)


class RedisServer:
    """A real one on a unix socket, that can be killed, frozen and started again, empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.socket = folder / "redis.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen(preflight.redis_command(self.folder), stdout=subprocess.DEVNULL)
        wait(self._answers, "Redis answers")

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(str(self.socket))
                client.sendall(b"PING\r\n")
                return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


class World:
    """One product. `database`: sqlite or postgresql.  disk_mib: of its data folder's own disk, if root may make one."""

    def __init__(self, database: str = "sqlite", *, pace_s: float = 0.05, disk_mib: int = 0) -> None:
        self.kind = database
        self._exit = contextlib.ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
        self._exit.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        if (
            disk_mib
            and subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk_mib}m", "tmpfs", self.data]).returncode == 0
        ):
            self._exit.callback(subprocess.run, ["umount", "--lazy", self.data])
        self.redis = RedisServer(self.folder / "redis")
        self._exit.callback(self.redis.kill)
        self.redis_proxy = Proxy(self.folder / "redis.sock", self.redis.socket)
        self._exit.callback(self.redis_proxy.close)
        self.redis_url = f"unix://{self.folder}/redis.sock?db=0"
        self.database_proxy: Proxy | None = None
        url = self._make_database()
        dropped = ("HACRL_", "PYTEST_", "DATABASE_URL", "REDIS_URL", "DJANGO_", "COV_")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(dropped)},
            "HACRL_DATA": str(self.data),
            "DATABASE_URL": url,
            "REDIS_URL": self.redis_url,
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            "HACRL_TRAINER_COMMAND": json.dumps([sys.executable, "-m", "tests.support.fake_trainer"]),
            "HACRL_FAKE_STEP_S": str(pace_s),
            "PYTHONUNBUFFERED": "1",
        }
        self.extra_workers: list[subprocess.Popen[bytes]] = []
        self.runs: list[UUID] = []
        self.opened: list[Browsers] = []
        self.up: subprocess.Popen[str] | None = None

    def _make_database(self) -> str:
        """Returns the address for the product; `self.database` reads past the proxy."""
        if self.kind == "sqlite":
            self.database = Database(self.data / "db.sqlite3")
            return f"sqlite:///{self.data / 'db.sqlite3'}"
        direct = self._exit.enter_context(private_postgresql())
        socket = Path(unquote(urlsplit(direct).netloc.rpartition("@")[2])) / ".s.PGSQL.5432"
        folder = self.folder / "pg"
        folder.mkdir()
        self.database_proxy = Proxy(folder / ".s.PGSQL.5432", socket)
        self._exit.callback(self.database_proxy.close)
        self.database = Database(direct.replace("postgres://", "postgresql://"))
        return f"postgres://hacrl@{quote(str(folder), safe='')}/postgres"

    # -- its life

    def __enter__(self) -> World:
        try:
            self.start()
            prepared = self.child("-m", "tests.faults.prepare")
            self.keys = json.loads(prepared.stdout.splitlines()[-1])
            self.monitor = Monitor(self.database, [self.data / "runs"])
            self.monitor.start()
            self._exit.callback(self.monitor.close)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """`up`, until its one line with the address."""
        with (self.folder / "up.err").open("a") as errors:
            self.up = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.up", "up", "--port", str(getattr(self, "port", 0))],
                cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        assert self.up.stdout is not None
        line = self.up.stdout.readline()
        found = re.match(r"HACRL Web: (http://[^:]+:(\d+))", line)
        if not found:
            raise TooLate(f"`up` did not come up: {line}{self.said()[-3000:]}")
        self.url, self.port = found[1], int(found[2])  # the same port after a restart: browsers come back to it

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.up is not None:
            self.up.send_signal(number)
            self.up.wait(timeout=120)
            assert self.up.stdout is not None
            self.up.stdout.close()
            self.up = None

    def close(self) -> None:
        self.close_browsers()
        self.end_workers()
        self.heal()
        left = [process for of_run in processes_of([self.data / "runs"]).values() for process in of_run]
        with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
            self.stop()
        if self.up is not None:
            self.up.kill()
            self.up.wait()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._exit.close()

    def keep(self) -> Path:
        """A copy of logs, database and run directories that outlives this world."""
        target = Path(tempfile.mkdtemp(prefix="hacrl-broken-"))
        return Path(shutil.copytree(self.data, target / "data", ignore=shutil.ignore_patterns("*.sock")))

    def heal(self) -> None:
        """Undo what a test may have left broken."""
        self.redis_proxy.delay_s = 0.0
        self.redis_proxy.resume()
        self.redis_proxy.mend()
        if self.redis.process is None or self.redis.process.poll() is not None:
            self.redis.start()
        self.redis.signal(signal.SIGCONT)
        if self.database_proxy is not None:
            self.database_proxy.resume()
            self.database_proxy.mend()
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_STOPPED:
                    process.resume()
        for path in [*self.data.glob("crash-*"), self.data / "clock", self.data / "silence"]:
            path.unlink(missing_ok=True)

    def family(self) -> list[psutil.Process]:
        """`up` and all that it has started."""
        if self.up is None:
            return []
        with contextlib.suppress(psutil.Error):
            return [psutil.Process(self.up.pid), *psutil.Process(self.up.pid).children(recursive=True)]
        return []

    def said(self) -> str:
        return (self.folder / "up.err").read_text()

    def log(self, name: str) -> str:
        return (self.data / "logs" / f"{name}.log").read_text(errors="replace")

    def pid(self, name: str) -> int:
        """Of web, worker or dispatcher; 0 in the pause before its next start."""
        return int(preflight.read_state(self.data).get("processes", {}).get(name, {}).get("pid", 0))

    def kill(self, name: str) -> int:
        """SIGKILL to one of them. Returns its pid."""
        pid = wait(lambda: self.pid(name), f"{name} is up")
        os.kill(pid, signal.SIGKILL)
        return pid

    def child(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A Python process with this world's settings, to its end."""
        command = [sys.executable, *arguments]
        environment = {**self.environment, **variables}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    def add_worker(self, **variables: str) -> subprocess.Popen[bytes]:
        """A second worker beside that of `up`, until the world's end. variables: where its environment differs."""
        command = [sys.executable, "-m", "celery", "-A", "hacrl_web.celery", "worker", "--pool", "prefork", "-c", "1"]
        number = len(self.extra_workers) + 2
        with (self.data / "logs" / f"worker{number}.log").open("ab") as log:
            worker = subprocess.Popen(
                [*command, "--loglevel", "INFO", "--without-gossip", "--without-mingle", "-n", f"worker{number}@%h"],
                cwd=ROOT, env={**self.environment, **variables}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.extra_workers.append(worker)
        return worker

    def end_workers(self) -> None:
        """Kill the further workers; their trainers go with them, and their runs go back to the queue."""
        for worker in self.extra_workers:
            children = psutil.Process(worker.pid).children() if worker.poll() is None else []
            worker.kill()
            worker.wait()
            for child in children:
                with contextlib.suppress(psutil.Error):
                    child.kill()
        self.extra_workers.clear()

    def crash_at(self, name: str) -> Path:
        """The next process that reaches this point (apps.py) is killed there, and the file is removed."""
        path = crash_file(self.data, name)
        path.write_text("")
        return path

    @contextlib.contextmanager
    def locked_database(self) -> Iterator[None]:
        """No writer gets through: SQLite's write lock is held, PostgreSQL is out of reach."""
        if self.database_proxy is not None:
            self.database_proxy.cut()
            try:
                yield
            finally:
                self.database_proxy.mend()
            return
        assert isinstance(self.database.url, Path)
        lock = sqlite3.connect(self.database.url, isolation_level=None, timeout=30)
        try:
            lock.execute("BEGIN IMMEDIATE")
            yield
            lock.execute("ROLLBACK")
        finally:
            lock.close()

    def freeze_supervisor(self, run_id: UUID) -> psutil.Process:
        """Suspend it outside a transaction: frozen within one, it would keep everybody else from writing its run."""
        process = psutil.Process(self.worker_pid(run_id))
        while True:
            process.suspend()
            wait(lambda: process.status() == psutil.STATUS_STOPPED, "it is frozen", pause_s=0.01)
            if self.database.is_writable(run_id):
                return process
            process.resume()
            time.sleep(0.05)

    # -- as a user

    def ask(self, path: str, body: Any = None, timeout_s: float = 60.0) -> Answer:
        """GET, or POST of JSON, as the logged-in user."""
        headers = {
            "Cookie": f"hacrl_session={self.keys['session']}; hacrl_csrf={TOKEN}",
            "X-CSRFToken": TOKEN,
            "Content-Type": "application/json",
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        started = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        return Answer(status, text, time.monotonic() - started)

    def request(self, name: str, steps: int = 100_000, save_steps: int = 10, **changes: Any) -> dict[str, Any]:
        """The body of a launch. `name` also selects the fake trainer's behaviour."""
        training = {"steps": steps, "train_batch_size": 4, "mini_batch_size": 4}
        return {
            "name": name,
            "group": self.keys["group"],
            "benchmark": self.keys["benchmark"],
            "algorithm": {"name": "hacpo"},
            "seed": 1,
            "training": training,
            "checkpoint": {"save_steps": save_steps},
            **changes,
        }

    def launch(self, name: str = "complete", steps: int = 100_000, save_steps: int = 10, **changes: Any) -> UUID:
        answer = self.ask("/api/v1/runs", self.request(name, steps, save_steps, **changes))
        assert answer.status == 201, answer.text
        run_id = UUID(answer.body["id"])
        self.runs.append(run_id)
        return run_id

    def stop_run(self, run_id: UUID) -> Answer:
        return self.ask(f"/api/v1/runs/{run_id}/stop", {})

    def browsers(self, count: int = 1) -> Browsers:
        opened = Browsers(self.url, self.keys["session"], count)
        self.opened.append(opened)
        return opened

    def close_browsers(self) -> None:
        """A user may have so many sockets and no more: those of one test must not count in the next."""
        while self.opened:
            self.opened.pop().close()

    # -- what there is of a run

    def run_dir(self, run_id: UUID) -> Path:
        return self.data / "runs" / str(run_id)

    def state(self, run_id: UUID) -> str:
        return str(self.database.value("SELECT state FROM runs_run WHERE id = ?", run_id))

    def worker_pid(self, run_id: UUID) -> int:
        return int(self.database.value("SELECT worker_pid FROM runs_run WHERE id = ?", run_id))

    def step(self, run_id: UUID) -> int:
        """The last step that is stored."""
        return int(self.database.value("SELECT step FROM runs_run WHERE id = ?", run_id) or 0)

    def attempt(self, run_id: UUID) -> int:
        return int(self.database.value("SELECT attempt FROM runs_run WHERE id = ?", run_id))

    def starts(self, run_id: UUID) -> dict[int, int]:
        """The step that each attempt went on from, by attempt."""
        return {attempt: step or 0 for _, attempt, kind, step in self.database.places(run_id) if kind == "started"}

    def changes(self, run_id: UUID) -> list[tuple[str, str]]:
        """The states it came to, with the reasons."""
        query = "SELECT to_state, reason FROM runs_statuschange WHERE run_id = ? ORDER BY id"
        return [(state, reason) for state, reason in self.database.rows(query, run_id)]

    def processes(self, run_id: UUID) -> list[psutil.Process]:
        found = processes_of([self.data / "runs"]).get(run_id, [])
        return [process for process in found if is_alive(process)]

    def trainer(self, run_id: UUID) -> psutil.Process:
        found = wait(lambda: trainers(self.processes(run_id)), "a trainer lives")
        return found[0]

    def emitted(self, run_id: UUID) -> int:
        return len(ledger(self.run_dir(run_id)))

    def messages(self, run_id: UUID) -> list[str]:
        """Of its log events."""
        query = "SELECT payload FROM runs_telemetryevent WHERE run_id = ? AND type = 'log' ORDER BY seq"
        return [
            (json.loads(payload) if isinstance(payload, str) else payload).get("message", "")
            for (payload,) in self.database.rows(query, run_id)
        ]

    def until_step(self, run_id: UUID, step: int) -> None:
        wait(lambda: self.step(run_id) >= step, f"step {step} of {run_id} is stored")

    def until_state(self, run_id: UUID, *states: str, seconds: float = PATIENCE_S) -> str:
        return str(wait(lambda: self.state(run_id) in states and self.state(run_id), f"{run_id} is {states}", seconds))

    def until_attempt(self, run_id: UUID, attempt: int, seconds: float = PATIENCE_S) -> None:
        """The first event of that attempt's trainer is stored."""
        wait(lambda: attempt in self.starts(run_id), f"attempt {attempt} of {run_id} has started", seconds)

    def end(self, run_id: UUID) -> None:
        if self.state(run_id) not in TERMINAL:
            wait(lambda: self.stop_run(run_id).status == 200, "the stop is taken")
        self.until_state(run_id, *TERMINAL)

    def end_all(self) -> None:
        """Also those that were queued on a page."""
        query = "SELECT id FROM runs_run WHERE state NOT IN ('draft', 'completed', 'stopped', 'failed')"
        for (run_id,) in self.database.rows(query):
            self.end(UUID(str(run_id)))
        self.runs.clear()

    def violations(self, run_id: UUID, browsers: Browsers | None = None) -> list[Violation | str]:
        """All of a run that has ended, and what the monitor has seen so far of any."""
        last = self.database.places(run_id)[-1:] if browsers else []
        if browsers and last:
            with contextlib.suppress(TooLate):  # then the comparison shows what is missing
                wait(lambda: all(cursor >= last[0][0] for cursor in browsers.cursors(run_id)), "all is shown")
        seen = browsers.seen(run_id) if browsers else []
        found: list[Violation | str] = [*check_run(self.database, self.run_dir(run_id), run_id, seen)]
        return [*found, *self.monitor.violations, *(browsers.violations() if browsers else [])]

    def redis_client(self) -> redis.Redis:
        """Past the proxy."""
        return redis.Redis(unix_socket_path=str(self.redis.socket))
