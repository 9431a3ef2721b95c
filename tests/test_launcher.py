"""The launcher: stamps, refusals, and a real `up` that serves, restarts its processes and leaves none."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from hacrl_web.ops import preflight
from hacrl_web.ops.processes import ManagedProcess, ProcessSupervisor, is_alive, rotate
from tests.support.http_server import Handler, http_server
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def script() -> ModuleType:
    """The file `hacrl` as a module."""
    loader = importlib.machinery.SourceFileLoader("hacrl_script", str(ROOT / "hacrl"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def checkout(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the files that the stamps depend on; its .venv is a link to this interpreter."""
    root = tmp_path / "a folder with spaces"
    (root / "frontend" / "static" / "vendor").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt", "frontend/package.json", "frontend/package-lock.json"):
        (root / name).write_text(name)
    (root / "frontend" / "vendor.json").write_text('{"a/a.js": "a/a.js"}')
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(script, "ROOT", root)
    monkeypatch.setattr(script, "FRONTEND", root / "frontend")
    monkeypatch.setattr(script, "VENV", root / ".venv")
    monkeypatch.setattr(script, "PYTHON", root / ".venv" / "bin" / "python")
    monkeypatch.setattr(script, "STAMP", root / ".venv" / "hacrl-stamp.json")
    return root


@pytest.fixture
def destinations(checkout: Path) -> Path:
    """The pins of the tools that mirrors send to."""
    pins = checkout / "tests" / "support" / "web" / "destinations.txt"
    pins.parent.mkdir(parents=True)
    pins.write_text("wandb==1")
    (checkout / "var" / "destinations").mkdir(parents=True)
    return pins


@pytest.fixture
def steps(script: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that an installation would run, without running them."""
    ran: list[list[str]] = []

    def note(title: str, command: list[str], log: Path, **options: Any) -> None:
        ran.append(command)
        if "ci" in command:
            (checkout / "frontend" / "node_modules" / "a").mkdir(parents=True, exist_ok=True)
            (checkout / "frontend" / "node_modules" / "a" / "a.js").write_text("library")

    monkeypatch.setattr(script, "step", note)
    monkeypatch.setattr(script, "node_command", lambda logs: ["npm"])
    monkeypatch.setattr(script, "CPU_INDEX", "http://127.0.0.1:9")  # nobody answers
    script.write_stamp(root=str(checkout))
    return ran


def test_full_suite_continues_where_vllm_cannot_be_installed(
    script: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def fails(title: str, command: list[str], log: Path, **options: Any) -> None:
        ran.append(" ".join(command[1:]))
        raise script.Problem("There is no wheel of it.")

    monkeypatch.setattr(script, "step", fails)
    script.install_vllm()
    assert ran == ["-m workers.rollouts.install_vllm"]
    assert "There is no wheel of it.\nContinuing without" in capsys.readouterr().err


def test_apt_is_asked_once_on_a_distribution_without_chromiums_shell(
    script: ModuleType, checkout: Path, steps: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {"apt-get", "redis-server", "psql", "bwrap"}
    monkeypatch.setattr(script.os, "geteuid", lambda: 0)
    monkeypatch.setattr(script.shutil, "which", lambda name: name if name in programs else None)
    monkeypatch.setattr(script.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 100))
    script.install_system_packages()
    assert [step[-1] for step in steps] == ["update", "chromium"]
    programs.add("chromium")
    script.install_system_packages()
    assert len(steps) == 2
    programs.remove("redis-server")
    script.install_system_packages()
    assert steps[3][-1] == "redis-server"


def test_up_installs_vllm_once_where_there_is_a_gpu(
    script: ModuleType, checkout: Path, steps: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def vllm_steps(*, has_gpu: bool, for_gpus: bool = True) -> list[str]:
        steps.clear()
        monkeypatch.setattr(script, "has_gpu", lambda: has_gpu)
        script.install(["web", "train"], for_gpus=for_gpus)
        return [" ".join(command[1:]) for command in steps if "workers.rollouts.install_vllm" in command]

    monkeypatch.setattr(script, "FREE_GIB_FOR_VLLM", 0)
    assert vllm_steps(has_gpu=False) == []
    assert vllm_steps(has_gpu=True, for_gpus=False) == []  # other commands
    monkeypatch.setenv("HACRL_VLLM", "0")
    assert vllm_steps(has_gpu=True) == []
    monkeypatch.setenv("HACRL_VLLM", "no")
    with pytest.raises(script.Problem, match="HACRL_VLLM=no: it must be 0"):
        vllm_steps(has_gpu=True)
    monkeypatch.delenv("HACRL_VLLM")
    assert vllm_steps(has_gpu=True) == ["-m workers.rollouts.install_vllm --gpu"]
    assert vllm_steps(has_gpu=True) == []
    (checkout / "constraints.txt").write_text("another version")
    assert vllm_steps(has_gpu=True) == ["-m workers.rollouts.install_vllm --gpu"]


def test_up_continues_where_vllm_cannot_be_installed_and_tells_how_to_try_again(
    script: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "has_gpu", lambda: True)
    monkeypatch.setattr(script, "FREE_GIB_FOR_VLLM", 10**9)
    for _ in range(2):
        script.install_engine(checkout)
    told = capsys.readouterr().err
    assert "vLLM may take 1000000000 GiB.\nContinuing without vLLM: runs sample with transformers" in told
    assert told.count("To try again: .venv/bin/python -m workers.rollouts.install_vllm") == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'", True),
        ("echo 'No devices found'", False),
        ("exit 9", False),
        ("", False),
    ],
)
def test_a_gpu_is_found_by_its_driver(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, expected: bool
) -> None:
    if answer:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert script.has_gpu() is expected


def test_demo_with_vllm_needs_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(preflight.StartRefused, match=r"vLLM is not installed here.*workers\.rollouts\.install_vllm"):
        preflight.check_vllm()
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda name: object())
    preflight.check_vllm()


def test_second_start_installs_nothing(script: ModuleType, checkout: Path, steps: list[list[str]]) -> None:
    script.install(["web", "train"])
    assert [command[-1] for command in steps] == [".[train,web]", str(checkout / "frontend")]
    assert (checkout / "frontend" / "static" / "vendor" / "a" / "a.js").read_text() == "library"
    steps.clear()
    script.install(["web", "train"])
    assert steps == []


def test_full_suite_has_the_tools_that_mirrors_send_to_in_an_environment_of_their_own(
    script: ModuleType, checkout: Path, destinations: Path, steps: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HACRL_MIRRORS_PYTHON", raising=False)
    python = str(checkout / "var" / "destinations" / "bin" / "python")
    for number in (2, 0):  # the second time nothing is installed
        assert script.install_destinations() == {"HACRL_MIRRORS_PYTHON": python}
        assert len(steps) == number
        assert all(command[0] == python and command[-1] == str(destinations) for command in steps[1:])
        steps.clear()
    destinations.write_text("wandb==2")
    script.install_destinations()
    assert len(steps) == 2

    def fails(*_: Any, **__: Any) -> None:
        raise script.Problem("There is no network.")

    destinations.write_text("wandb==3")
    monkeypatch.setattr(script, "step", fails)
    assert script.install_destinations() == {}
    monkeypatch.setenv("HACRL_MIRRORS_PYTHON", "/mine/python")
    monkeypatch.setattr(script, "step", None)
    assert script.install_destinations() == {}


def test_tested_clients_of_mirrors_are_those_that_the_product_pins() -> None:
    root = Path(__file__).resolve().parent.parent
    tested, pinned = (
        dict(line.split("==") for line in (root / name).read_text().splitlines() if "==" in line)
        for name in ("tests/support/web/destinations.txt", "constraints.txt")
    )
    for name in ("mlflow-skinny", "wandb", "trackio", "tensorboard"):
        assert tested[name] == pinned[name]
    assert tested["mlflow"] == tested["mlflow-skinny"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_pins_are_installed(script: ModuleType, checkout: Path, steps: list[list[str]], name: str) -> None:
    script.install(["web"])
    steps.clear()
    (checkout / name).write_text("changed")
    script.install(["web"])
    assert [command[1:4] for command in steps] == [["-m", "pip", "install"]]


@pytest.mark.parametrize("name", ["package-lock.json", "package.json"])
def test_changed_lock_file_is_installed(script: ModuleType, checkout: Path, steps: list[list[str]], name: str) -> None:
    script.install(["web"])
    steps.clear()
    (checkout / "frontend" / name).write_text("changed")
    script.install(["web"])
    assert [command[:2] for command in steps] == [["npm", "ci"]]


def test_a_further_extra_keeps_those_installed_before(
    script: ModuleType, checkout: Path, steps: list[list[str]]
) -> None:
    script.install(["web", "train"])
    steps.clear()
    script.install(["web", "dev"])
    assert steps[0][-1] == ".[dev,train,web]"
    steps.clear()
    script.install(["web", "train"])
    assert steps == []


def test_moved_checkout_gets_a_new_environment(script: ModuleType, checkout: Path, steps: list[list[str]]) -> None:
    script.install(["web"])
    steps.clear()
    script.write_stamp(root="/somewhere/else")
    script.install(["web"])
    assert steps[0][1:4] == ["-m", "venv", "--clear"]


def test_linked_environment_of_another_folder_is_not_emptied(
    script: ModuleType, checkout: Path, steps: list[list[str]], tmp_path: Path
) -> None:
    script.write_stamp(root="/somewhere/else")
    (checkout / ".venv").rename(tmp_path / "theirs")
    (checkout / ".venv").symlink_to(tmp_path / "theirs")
    with pytest.raises(script.Problem, match=r"is a link to .*theirs, which was not made for this folder"):
        script.install(["web"])
    assert steps == []


def test_torch_index_is_added_and_does_not_replace_the_users(
    script: ModuleType, steps: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACRL_TORCH_INDEX", "https://torch.example.org/cpu")
    script.install(["web", "train"])
    place = steps[0].index("--extra-index-url")
    assert steps[0][place + 1] == "https://torch.example.org/cpu"
    assert "--index-url" not in steps[0]


@pytest.fixture
def cpu_builds(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """PyTorch's index of CPU builds, on this machine."""
    with http_server(FileAnswer) as address:
        monkeypatch.setattr(script, "CPU_INDEX", address)
        yield address


class FileAnswer(Handler):
    def do_GET(self) -> None:
        self.reply(200, b"torch-2.13.0+cpu.whl")


@pytest.mark.parametrize(
    ("extras", "has_gpu", "has_index"),
    [(["web", "train"], False, True), (["web"], False, False), (["web", "train"], True, False)],
    ids=["trains on CPUs", "has no torch", "has a GPU"],
)
def test_cpu_build_of_torch_is_taken_where_no_gpu_is_seen(
    script: ModuleType, steps: list[list[str]], monkeypatch: pytest.MonkeyPatch, cpu_builds: str,
    extras: list[str], has_gpu: bool, has_index: bool,
) -> None:  # fmt: skip
    monkeypatch.delenv("HACRL_TORCH_INDEX", raising=False)
    monkeypatch.setattr(script, "has_gpu", lambda: has_gpu)
    script.install(extras)
    assert (cpu_builds in steps[0]) is has_index


@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "refuses"])
def test_index_of_cpu_builds_that_does_not_answer_is_left_out_and_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_silent: bool
) -> None:
    monkeypatch.delenv("HACRL_TORCH_INDEX", raising=False)
    monkeypatch.setattr(script, "has_gpu", lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(script, "CPU_INDEX", f"http://127.0.0.1:{listener.getsockname()[1]}")
        if not is_silent:
            listener.close()
        assert script.torch_index() == ""
    assert "does not answer: torch comes from the index of your pip." in capsys.readouterr().err


def test_waiting_launcher_says_who_installs(
    script: ModuleType, checkout: Path, steps: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    script.install(["web"])
    assert "Waiting" not in capsys.readouterr().err
    path = checkout / "var" / "install.lock"
    with path.open("a+") as held:
        script.take_lock(held)
        threading.Timer(0.3, held.close).start()
        script.install(["web"])
    since = rf"pid {os.getpid()}, since \d\d:\d\d:\d\d"
    assert re.search(rf"^Waiting for another launcher, .* \({since}\)", capsys.readouterr().err)
    assert re.fullmatch(since, path.read_text())


def test_full_disk_is_reported_before_anything_is_downloaded(
    script: ModuleType, checkout: Path, steps: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_stamp(root="/somewhere/else")
    monkeypatch.setattr(script.shutil, "disk_usage", lambda path: _usage(free=2**30))
    with pytest.raises(script.Problem, match=r"has 1\.0 GiB of free space; the packages need about 3 GiB"):
        script.install(["web"])
    assert steps == []


def _usage(free: int) -> Any:
    return type("Usage", (), {"free": free})


@pytest.mark.parametrize(
    ("log", "cure"),
    [
        ("pip: Temporary failure in name resolution", "could not be reached"),
        ("npm ERR! code ENOTFOUND", "could not be reached"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("error: command 'gcc' failed", "install a C compiler"),
        ("ERROR: No matching distribution found for torch==2.13.0", "not on the package index"),
        ("The virtual environment was not created because ensurepip is not available", "python3-venv"),
    ],
)
def test_failed_step_says_what_to_do(script: ModuleType, tmp_path: Path, log: str, cure: str) -> None:
    command = [sys.executable, "-c", f"print({log!r}); raise SystemExit(3)"]
    with pytest.raises(script.Problem) as problem:
        script.step("A step", command, tmp_path / "log")
    assert "exit status 3" in str(problem.value)
    assert log in str(problem.value)
    assert cure in str(problem.value)


def test_long_step_names_its_log_and_reports_progress(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "REPORT_EVERY_S", 0.1)
    script.step("Sleeping", [sys.executable, "-c", "import time; time.sleep(0.5)"], tmp_path / "log")
    first, *between, last = capsys.readouterr().err.splitlines()
    assert first == f"Sleeping ... (log: {tmp_path / 'log'})"
    assert between
    assert all(re.fullmatch(r"  \d+ s \.\.\.", line) for line in between)
    assert last.startswith("  done in ")


def test_size_of_the_environment_is_shown_beside_what_it_will_have(
    script: ModuleType, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(script, "REPORT_EVERY_S", 0.1)
    with (checkout / ".venv" / "torch.so").open("wb") as file:
        file.truncate(11 * 10**8)
    for most_gb, size in ((1.6, "1.1 of 1.6 GB"), (0.0, "1.1 GB"), (1.0, "1.1 GB")):
        script.step("Filling", [sys.executable, "-c", "import time; time.sleep(0.3)"], tmp_path / "log", most_gb)
        assert f" s, {size} ...\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", ""),
        ("Collecting torch\nDownloading torch-2.13.0.whl (190 MB)\n", "Downloading torch-2.13.0.whl (190 MB)"),
        ("Collecting torch\nDownl", "Collecting torch"),
        (
            "Installing collected packages: setuptools, torch\n  Attempting uninstall: setuptools\n"
            "    Uninstalling setuptools-65.5.0:\n      Successfully uninstalled setuptools-65.5.0\n",
            "Installing collected packages: setuptools, torch",
        ),
        ("npm warn deprecated\nadded 80 packages\n", "added 80 packages"),
        ("Collecting " + "x" * 200 + "\n", "Collecting " + "x" * 88 + "…"),
        (
            "WARNING: Retrying (Retry(total=3)) after connection broken by 'NewConnectionError(': [Errno -2]\n",
            "A package index could not be reached: check the network, the proxy and `pip config list`, and start "
            "again. If HACRL_TORCH_INDEX is set, it may be left out.",
        ),
    ],
)
def test_long_step_shows_its_last_line_or_what_to_check(
    script: ModuleType, tmp_path: Path, log: str, said: str
) -> None:
    """pip retries an unreachable index for each package, which takes minutes."""
    (tmp_path / "log").write_text(log)
    assert script.newest_line(tmp_path / "log").startswith(said)
    assert bool(script.newest_line(tmp_path / "log")) == bool(said)


def test_step_ends_with_the_launcher(tmp_path: Path) -> None:
    """A TERM during the installation also ends pip."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo 3 12 && exit\necho $$ > {tmp_path}/pid\nexec sleep 60\n')
    python.chmod(0o755)
    copy = tmp_path / "hacrl"
    copy.write_text((ROOT / "hacrl").read_text())
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    launcher = subprocess.Popen([sys.executable, copy, "up"], env={**os.environ, "HACRL_PYTHON": str(python)})
    assert wait_until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()), 60)
    launcher.terminate()
    assert launcher.wait(60) == 143
    pid = int((tmp_path / "pid").read_text())
    # Whoever inherits it may never read its status.
    assert wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 60)


def test_wrong_python_is_named(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\necho 3 9\n")
    old.chmod(0o755)
    monkeypatch.setenv("HACRL_PYTHON", str(old))
    with pytest.raises(script.Problem, match=r"is Python 3\.9; Python 3\.11, 3\.12 or 3\.13 is needed"):
        script.find_python()


# ---- preflight ------------------------------------------------------------------------------------------------------


def test_port_in_use_is_refused_with_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(preflight.StartRefused) as refusal:
            preflight.check_port("127.0.0.1", port)
    assert f"Port {port} is in use" in str(refusal.value)
    assert f"process {os.getpid()}" in str(refusal.value)
    assert f"--port {port + 1}" in str(refusal.value)


def test_port_of_another_installation_is_refused_with_its_address(tmp_path: Path) -> None:
    (tmp_path / "up.json").write_text(json.dumps({"url": "http://127.0.0.1:8000"}))
    code = "import socket, sys; l = socket.create_server(('127.0.0.1', 0)); print(l.getsockname()[1], flush=True); "
    code += "sys.stdin.read()"
    command, environment = [sys.executable, "-c", code, "hacrl_web.asgi"], os.environ | {"HACRL_DATA": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as web:
        assert web.stdout
        port = int(web.stdout.readline())
        with pytest.raises(preflight.StartRefused, match=r"by HACRL Web of .* which runs at http://127\.0\.0\.1:8000 "):
            preflight.check_port("127.0.0.1", port)
        web.communicate("")


@pytest.mark.parametrize("port", [70_000, -1])
def test_impossible_port_is_refused(port: int) -> None:
    with pytest.raises(preflight.StartRefused, match="is not a port"):
        preflight.check_port("127.0.0.1", port)


def test_second_up_is_refused_with_the_pid(tmp_path: Path) -> None:
    assert preflight.lock_holder(tmp_path) is None
    lock = preflight.take_lock(tmp_path)
    try:
        assert preflight.lock_holder(tmp_path) == os.getpid()
        with pytest.raises(preflight.StartRefused, match=rf"already up .*pid {os.getpid()}\b"):
            preflight.take_lock(tmp_path)
    finally:
        os.close(lock)
    assert preflight.lock_holder(tmp_path) is None


def test_unwritable_data_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(preflight.StartRefused, match=r"cannot be written .*HACRL_DATA"):
        preflight.make_data_folder(tmp_path / "file" / "var")


def test_redis_socket_lies_in_the_data_folder_where_its_path_is_short(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = Path("/tmp") / f"hacrl-test-{os.getpid()}"
    preflight.make_data_folder(data)
    try:
        folder = preflight.redis_folder(data)
        assert folder == data / "redis"
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        preflight.shutil.rmtree(data)


@pytest.mark.parametrize("name", ["x" * 100, "with space", "with%20percent", "with?question"])
def test_redis_socket_moves_where_its_path_is_long_or_odd(tmp_path: Path, name: str) -> None:
    data = tmp_path / name
    preflight.make_data_folder(data)
    folder = preflight.redis_folder(data)
    try:
        assert folder.parent != data
        assert len(str(folder / "redis.sock")) < preflight.SOCKET_PATH_LIMIT
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        folder.rmdir()


def test_redis_keeps_nothing_and_listens_on_no_port() -> None:
    command = preflight.redis_command(Path("/tmp/x"))
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--port"] == "0"
    assert options["--save"] == ""
    assert options["--appendonly"] == "no"
    assert options["--unixsocketperm"] == "700"


@pytest.mark.parametrize(
    ("host", "variables", "message"),
    [
        ("0.0.0.0", {}, "HACRL_ALLOWED_HOSTS"),
        ("0.0.0.0", {"HACRL_ALLOWED_HOSTS": "box", "HACRL_DEBUG": "1"}, "HACRL_DEBUG"),
        ("10.0.0.7", {"HACRL_SECRET_KEY": "a" * 60}, "too weak"),
    ],
)
def test_unsafe_public_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, host: str, variables: dict[str, str], message: str
) -> None:
    for name in ("HACRL_ALLOWED_HOSTS", "HACRL_DEBUG", "HACRL_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(preflight.StartRefused, match=message):
        preflight.check_public_bind(host)


def test_another_database_is_migrated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    database = tmp_path / "db.sqlite3"
    assert not preflight.is_migrated(tmp_path)
    _write_migrations(database, "0001_start", "0002_more")
    preflight.note_migrated(tmp_path)
    assert preflight.is_migrated(tmp_path)
    _write_migrations(tmp_path / "other", "0001_start", "0002_more")
    older = tmp_path / "older"
    _write_migrations(older, "0001_start")
    database.write_bytes(older.read_bytes())  # the same inode
    assert not preflight.is_migrated(tmp_path)
    database.write_text("no database")
    assert not preflight.is_migrated(tmp_path)
    (tmp_path / "other").replace(database)  # a restored copy: another inode
    assert not preflight.is_migrated(tmp_path)
    preflight.note_migrated(tmp_path)
    assert preflight.is_migrated(tmp_path)
    monkeypatch.setenv("DATABASE_URL", "postgres:///hacrl")
    assert not preflight.is_migrated(tmp_path)


def _write_migrations(path: Path, *names: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE django_migrations (app, name)")
        connection.executemany("INSERT INTO django_migrations VALUES ('runs', ?)", [(name,) for name in names])


# ---- processes ------------------------------------------------------------------------------------------------------


def test_log_is_rotated_while_its_writer_continues(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    with log.open("ab", buffering=0) as writer:
        for text in (b"first", b"second", b"third"):
            writer.write(text)
            rotate(log, limit=1)
        writer.write(b"now")
    assert log.read_bytes() == b"now"
    assert [Path(f"{log}.{n}").read_bytes() for n in (1, 2, 3)] == [b"third", b"second", b"first"]


def test_pauses_between_starts_grow(tmp_path: Path) -> None:
    child = ManagedProcess("x", ["false"], tmp_path / "x.log", dict(os.environ), tmp_path)
    pauses = []
    for _ in range(9):
        child.start()
        assert child.process is not None
        child.process.wait()
        assert child.reap() == 1
        pauses.append(child.pause_s)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_dead_process_is_restarted_and_reported(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = ProcessSupervisor(said.append)
    child = supervisor.add(ManagedProcess("x", ["sleep", "60"], tmp_path / "x.log", dict(os.environ), tmp_path))
    assert child.process is not None
    first = child.process.pid
    try:
        os.kill(first, signal.SIGKILL)
        assert supervisor.wait(lambda: child.process is not None and child.process.pid != first, 5, pause_s=0.05)
    finally:
        supervisor.stop()
    assert len(said) == 1
    assert "x ended (signal SIGKILL); starting it again in 0.5 s" in said[0]
    assert child.process.poll() is not None


# ---- the whole thing ------------------------------------------------------------------------------------------------


class RunningUp:
    """`hacrl_web.ops.up up` with this interpreter over a data folder of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        inherited = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "REDIS_URL")}
        self.environment = {**inherited, "HACRL_DATA": str(data), "DJANGO_SETTINGS_MODULE": "hacrl_web.settings"}
        self.errors = (data.parent / f"{data.name}.err").open("w")
        self.process = subprocess.Popen(
            self.command("up", "--port", "0"),
            cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "hacrl_web.ops.up", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=100
        )

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def state(self) -> dict[str, Any]:
        return json.loads((self.data / "up.json").read_text())

    def pid(self, name: str) -> int:
        return int(self.state()["processes"].get(name, {}).get("pid", 0))  # 0: in the pause before its next start

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def said(self) -> str:
        return Path(self.errors.name).read_text()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=90)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[RunningUp]:
    data = tmp_path / "data folder"
    data.mkdir()
    running = RunningUp(data)
    yield running
    running.close()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


@pytest.mark.full
def test_up_serves_restarts_processes_and_leaves_none(up: RunningUp) -> None:
    line = up.first_line()
    found = re.fullmatch(
        r"HACRL Web: (http://127\.0\.0\.1:\d+)  log in once with \1(/login/\S+)  \(Ctrl-C .*\)\n", line
    )
    assert found, line + up.said()
    assert answers(f"{found[1]}/login")
    assert answers(found[1] + found[2])
    assert set(up.state()["processes"]) == {"redis", "web", "worker", "dispatcher", "watcher"}
    assert (up.data / "secret_key").stat().st_mode & 0o777 == 0o600

    again = up.run("up", "--port", "0")
    assert again.returncode == 1
    assert f"already up in {up.data} (pid {up.process.pid}" in again.stderr
    assert f"pid {up.process.pid}" in up.run("status").stdout

    killed = up.pid("web")
    os.kill(killed, signal.SIGKILL)
    assert wait_until(lambda: up.pid("web") not in (0, killed) and answers(f"{found[1]}/login"), 30, pause_s=0.1)
    assert "web ended (signal SIGKILL); starting it again" in up.said()

    family = up.family()
    assert len(family) >= 6  # redis, web, dispatcher, watcher, the worker and its pool child
    up.process.terminate()
    assert up.process.wait(timeout=60) == 0
    assert [process for process in family if is_alive(process)] == []
    assert not (up.data / "up.json").exists()
    assert up.run("status").returncode == 1


@pytest.mark.full
def test_down_stops_up_and_the_next_up_ends_leftovers_of_a_killed_one(up: RunningUp, tmp_path: Path) -> None:
    assert up.first_line().startswith("HACRL Web: "), up.said()
    family = up.family()
    os.kill(up.process.pid, signal.SIGKILL)
    up.process.wait()
    assert wait_until(lambda: not any(map(is_alive, family)), 60, pause_s=0.1)
    following = RunningUp(up.data)
    try:
        assert following.first_line().startswith("HACRL Web: "), following.said()
        stopped = following.run("down")
        assert stopped.returncode == 0, stopped.stderr
        assert f"stopped: pid {following.process.pid}" in stopped.stdout
        assert following.process.wait(timeout=60) == 0
        assert following.run("down").returncode == 1
    finally:
        following.close()
