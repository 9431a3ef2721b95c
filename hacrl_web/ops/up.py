"""`./hacrl up`, `demo`, `status`, `down` and `manage`, in the virtual environment.

`up` starts Redis, migrates, starts web, worker, dispatcher and watcher, prints their address, and watches them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from hacrl_web.ops import preflight
from hacrl_web.ops.preflight import ROOT, StartRefused, command

with contextlib.suppress(ModuleNotFoundError):  # `status` and `down` work before psutil is installed
    import psutil

    from hacrl_web.ops.processes import ManagedProcess, ProcessSupervisor, end_all, is_alive, started_at

START_TIMEOUT_S = 120.0  # a first start on a cold disk
WORKER_GRACE_S = 50.0  # a trainer has 10 s to end its step and 30 s to end by itself
FAILURES_BEFORE_GIVING_UP = 3


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Up:
    """A running product: data folder, processes, address."""

    def __init__(
        self, data: Path, host: str, port: int, announce: Callable[[str], None] = print, at_once: int = 1
    ) -> None:
        self.data, self.host, self.port, self.announce = data, host, port, announce
        self.at_once = at_once  # runs that the worker trains at the same time
        preflight.make_data_folder(data)
        self.lock = preflight.take_lock(data)  # until this process ends
        self.public = preflight.check_public_bind(host)
        preflight.check_port(host, port)
        end_leftovers(preflight.read_state(data))
        by_host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - for a browser on this machine
        host_in_url = by_host.get(host, f"[{host}]" if ":" in host else host)
        self.url = f"http://{host_in_url}:{port}"
        self.redis_folder = None if os.environ.get("REDIS_URL") else preflight.redis_folder(data)
        self.redis_url = os.environ.get("REDIS_URL") or f"unix://{self.redis_folder}/redis.sock?db=0"
        self.environment = {
            **os.environ,
            **self.public,
            "HACRL_DATA": str(data),
            "REDIS_URL": self.redis_url,
            "HACRL_PUBLIC_URL": os.environ.get("HACRL_PUBLIC_URL") or self.url,
            "DJANGO_SETTINGS_MODULE": "hacrl_web.settings",
            "PYTHONUNBUFFERED": "1",
        }
        self.started_at = time.time()
        self.supervisor = ProcessSupervisor(say)
        self.supervisor.on_change = self.write_state
        self.supervisor.handle_signals()

    # -- starting

    def start(self) -> bool:
        """Start everything: True once the web answers, False after a signal. Error: StartRefused."""
        if self.redis_folder is not None:
            self._add("redis", preflight.redis_command(self.redis_folder))
        self._migrate()
        web = self._add("web", command("web", self.host, self.port))
        link = self._single("login_link", stdout=subprocess.PIPE)
        self._add("worker", command("worker", at_once=self.at_once)).grace_s = WORKER_GRACE_S
        self._add("dispatcher", command("dispatcher"))
        self._add("watcher", command("watcher"))
        self.write_state()
        if not self.supervisor.wait(lambda: self._is_serving(web), START_TIMEOUT_S, pause_s=0.1):
            if self.supervisor.stopping:
                return False
            silence = f"The web did not answer within {START_TIMEOUT_S:.0f} s"
            raise StartRefused(f"{silence}; its log ends:\n{web.last_lines()}")
        self._announce(link)
        return True

    def _add(self, name: str, words: list[str]) -> ManagedProcess:
        log = self.data / "logs" / f"{name}.log"
        return self.supervisor.add(ManagedProcess(name, words, log, self.environment, ROOT))

    def _single(self, *arguments: str, stdout: Any = None, errors: Any = subprocess.STDOUT) -> subprocess.Popen[bytes]:
        words = [sys.executable, "manage.py", *arguments]
        return self.supervisor.single(words, self.environment, ROOT, stdout, errors)

    def _migrate(self) -> None:
        """Migrate, unless neither the database nor the migrations have changed."""
        if preflight.is_migrated(self.data):
            return
        say("Preparing the database ...")
        started = time.monotonic()
        log = self.data / "logs" / "migrate.log"
        with log.open("wb") as file:
            migrate = self._single("prepare_database", stdout=file)
            if not self.supervisor.wait(lambda: migrate.poll() is not None, pause_s=0.2):
                return
        if migrate.returncode:
            tail = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-8:])
            raise StartRefused(f"The database could not be prepared:\n{tail}\nThe whole log: {log}")
        preflight.note_migrated(self.data)
        say(f"  done in {time.monotonic() - started:.1f} s")

    def _is_serving(self, web: ManagedProcess) -> bool:
        for child in self.supervisor.children:
            if child.restarts >= FAILURES_BEFORE_GIVING_UP:
                failure = f"{child.name} ended {child.restarts} times while starting"
                raise StartRefused(f"{failure}; its log ends:\n{child.last_lines()}")
        try:
            with urllib.request.urlopen(f"{self.url}/login", timeout=5):  # noqa: S310 - our http address
                return True
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                failure = f"The web answers {error.code} to /login"
                raise StartRefused(f"{failure}; its log ends:\n{web.last_lines()}") from error
            return True
        except OSError:
            return False

    def _announce(self, link: subprocess.Popen[bytes]) -> None:
        """Print the address and a login link, in one line."""
        self.supervisor.wait(lambda: link.poll() is not None, 30, pause_s=0.1)
        output = link.stdout.read().decode(errors="replace") if link.poll() is not None and link.stdout else ""
        self.login_url = next((line.strip() for line in reversed(output.splitlines()) if "/login/" in line), None)
        if self.login_url:
            self.announce(f"HACRL Web: {self.url}  log in once with {self.login_url}  (Ctrl-C stops it)")
        else:
            self.announce(f"HACRL Web: {self.url}  (no login link: see `./hacrl login_link`)\n{output}")

    # -- while it runs

    def write_state(self) -> None:
        """Write up.json, for `status`, `down`, and the next start after a crash."""
        preflight.write_state(
            self.data,
            {
                "pid": os.getpid(),
                "url": self.url,
                "started_at": self.started_at,
                "redis_url": self.redis_url,
                "processes": {
                    child.name: {"pid": child.process.pid, "created": child.created, "restarts": child.restarts}
                    for child in self.supervisor.children
                    if child.process is not None
                },
            },
        )

    def stop(self) -> None:
        """End every process, in order, and delete temporary files."""
        if self.supervisor.children:
            say("Stopping ...")
        self.supervisor.stop()
        if self.redis_folder is not None and self.redis_folder.parent != self.data:
            shutil.rmtree(self.redis_folder, ignore_errors=True)
        (self.data / "up.json").unlink(missing_ok=True)

    def demo(self, once: bool, arguments: list[str]) -> int:
        """Run manage.py demo in the running product and open its page. Returns the exit status."""
        if once:
            process = self._single("demo", *arguments, errors=None)
            self.supervisor.wait(lambda: process.poll() is not None, pause_s=1.0)
            return process.poll() if process.poll() is not None else 130  # type: ignore[return-value]
        with (self.data / "demo.out").open("w+b") as output:
            process = self._single("demo", *arguments, stdout=output, errors=None)
            if not self.supervisor.wait(lambda: process.poll() is not None):
                return 130
            output.seek(0)
            page = re.search(rb"^/\S+$", output.read(), re.MULTILINE)
        if process.returncode:
            say(f"The demo could not be started (exit status {process.returncode}), see above; HACRL Web stays up.")
        elif page:
            path = page[0].decode()
            self._open(path)
            self._single("demo", "--follow", path.rpartition("/")[2], errors=None)
        self.supervisor.wait(lambda: False)
        return process.returncode or 0

    def _open(self, path: str) -> None:
        say(f"The demo's page: {self.url}{path}")
        has_display = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if has_display and self.login_url:
            webbrowser.open(f"{self.login_url}?next={path}")


def end_leftovers(state: dict[str, Any]) -> None:
    """End the processes of a killed `up`: this one holds the lock, so no other `up` needs them."""
    for entry in state.get("processes", {}).values():
        with contextlib.suppress(psutil.Error, KeyError, TypeError):
            process = psutil.Process(entry["pid"])
            is_the_same = abs(started_at(process) - entry["created"]) < 1  # else another process has the pid now
            if is_the_same and is_alive(process):
                family = [process, *process.children(recursive=True)]
                say(f"Ending process {process.pid}, which an earlier start left running")
                process.terminate()
                end_all(family, WORKER_GRACE_S)


# ---- the other commands ---------------------------------------------------------------------------------------------


def running_products() -> dict[Path, int]:
    """The pid of each running `up` by data folder: HACRL_DATA, or the product's and the demo's."""
    names = ["var"] if os.environ.get("HACRL_DATA") else ["var", "var/demo"]
    holders = {data: preflight.lock_holder(data) for data in map(preflight.data_folder, names)}
    return {data: holder for data, holder in holders.items() if holder is not None}


def status() -> int:
    """Print what runs; exit status 1 if nothing does."""
    products = running_products()
    for data, holder in products.items():
        state = preflight.read_state(data)
        since = datetime.fromtimestamp(state["started_at"]).strftime("%Y-%m-%d %H:%M") if "started_at" in state else "?"
        print(f"up: {state.get('url', 'starting')} (pid {holder}, since {since}, data in {data})")
        for name, process in state.get("processes", {}).items():
            print(f"  {name:<10} pid {process['pid']:<8} restarts {process['restarts']}")
    if not products:
        print("not up: start it with ./hacrl up")
    return 0 if products else 1


def down() -> int:
    """Stop what runs and wait until it has ended; exit status 1 if nothing ran."""
    products = {data: holder for data, holder in running_products().items() if holder > 0}
    for data, holder in products.items():
        try:
            os.kill(holder, signal.SIGTERM)
        except ProcessLookupError:
            continue
        except PermissionError:
            print(f"pid {holder} belongs to another user: stop it as that user, or as root.")
            return 1
        deadline = time.monotonic() + WORKER_GRACE_S + 30
        while preflight.lock_holder(data) == holder:
            if time.monotonic() > deadline:
                print(f"pid {holder} has not stopped; see {data / 'logs'}")
                return 1
            time.sleep(0.1)
        print(f"stopped: pid {holder}, data in {data}")
    if not products:
        print("not up: nothing to stop")
    return 0 if products else 1


def manage(arguments: list[str]) -> None:
    """Run a manage.py command with the data folder, Redis and address of a running `up`."""
    name_running_product()
    os.execv(sys.executable, [sys.executable, str(ROOT / "manage.py"), *arguments])


def name_running_product() -> None:
    """Set the data folder, Redis and address of a running `up`, if any, in this process's environment."""
    data = preflight.data_folder()
    demo = preflight.data_folder("var/demo")
    if not os.environ.get("HACRL_DATA") and preflight.lock_holder(data) is None and preflight.lock_holder(demo):
        data = demo
        say(f"Using the running demo in {demo}; name another data folder in HACRL_DATA.")
    os.environ.setdefault("HACRL_DATA", str(data))
    state = preflight.read_state(data) if preflight.lock_holder(data) else {}
    for variable, name in (("REDIS_URL", "redis_url"), ("HACRL_PUBLIC_URL", "url")):
        if state.get(name):
            os.environ.setdefault(variable, state[name])


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./hacrl", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "demo"):
        command = commands.add_parser(name)
        command.add_argument("--port", type=int, help="default 8000; 0 and demo --once: a free one")
        command.add_argument("--host", default="127.0.0.1", help="address to listen on")
        if name == "demo":
            command.add_argument("--once", action="store_true", help="without pages: run, print the result, stop")
            command.add_argument("--json", action="store_true", help="with --once: the last line is JSON")
            command.add_argument("--seeds", help="how many, such as 3, or which, such as 0,1,2")
            command.add_argument("--algorithms", help="for instance hacpo,gspo,gspox2,naive_source")
            command.add_argument(
                "--pretrained",
                nargs="?",
                const="",
                metavar="SOURCE",
                help="two agents made from a pretrained model: hub id, folder or package (default: SmolLM2-135M)",
            )
            command.add_argument("--engine", choices=("transformers", "vllm"), help="what generates the rollouts")
    commands.add_parser("status")
    commands.add_parser("down")
    return parser.parse_args(arguments)


def serve(options: argparse.Namespace) -> int:
    """Run the product, with or without the demo, until it ends. Error: StartRefused."""
    is_demo = options.command == "demo"
    if is_demo and options.engine == "vllm":
        preflight.check_vllm()
    once = is_demo and options.once
    data = preflight.data_folder("var/demo" if is_demo else "var")
    port = options.port if options.port is not None else 0 if once else 8000
    port = port or preflight.free_port(options.host)
    is_tiny = is_demo and options.pretrained is None and options.engine != "vllm"  # its runs take one thread each
    announce = say if once else lambda line: print(line, flush=True)
    up = Up(data, options.host, port, announce, at_once=min(2, os.cpu_count() or 1) if is_tiny else 1)
    try:
        if not up.start():
            return 130
        if not is_demo:
            up.supervisor.wait(lambda: False)
            return 0
        words = [*(["--once"] if once else []), *(["--json"] if options.json else [])]
        for name in ("seeds", "algorithms", "engine"):
            if value := getattr(options, name):
                words += [f"--{name}", value]
        if options.pretrained is not None:
            words += ["--pretrained", *filter(None, [options.pretrained])]
        return up.demo(once, words)
    finally:
        up.stop()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["manage"]:
        manage(arguments[1:])
    options = parse(arguments)
    if options.command == "status":
        return status()
    if options.command == "down":
        return down()
    try:
        return serve(options)
    except StartRefused as refusal:
        say(f"hacrl: {refusal}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
