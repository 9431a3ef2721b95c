"""The containers without a container engine: rules that the compose files must keep, and what the images start."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hacrl_web import container
from hacrl_web.ops import preflight
from hacrl_web.ops.loop import liveness_file
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
DOCKER = ROOT / "docker"
BASE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
GPU = yaml.safe_load((DOCKER / "compose.gpu.yaml").read_text())
WORKER = yaml.safe_load((DOCKER / "compose.worker.yaml").read_text())
SERVICES = [
    (f"{name}:{key}", one)
    for name, file in (("main", BASE), ("worker", WORKER))
    for key, one in file["services"].items()
]
each_service = pytest.mark.parametrize("service", [one for _, one in SERVICES], ids=[name for name, _ in SERVICES])
PINNED = re.compile(r"[a-z/]+:\d+\.\d+[\w.-]*")


def stages() -> dict[str, list[str]]:
    """The instructions of each stage of the Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n", " ", (DOCKER / "Dockerfile").read_text())
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("FROM "):
            found[line.split()[-1]] = lines = [line]
        elif line.strip() and not line.startswith("#"):
            lines.append(line)
    return found


@each_service
def test_every_service_is_fenced_in(service: dict[str, Any]) -> None:
    user, _, group = service["user"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["restart"] == "unless-stopped"
    assert service["init"] is True
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"} & set(service)
    assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])
    assert not any("docker.sock" in mount for mount in service.get("volumes", []))
    assert service["logging"]["options"]["max-size"]


def test_only_the_web_is_reached_and_from_this_machine_only() -> None:
    published = {name: one["ports"] for name, one in BASE["services"].items() if "ports" in one}
    assert published == {"web": ["127.0.0.1:8000:8000"]}
    assert BASE["networks"]["inside"] == {"internal": True}
    for name in ("database", "redis"):
        assert BASE["services"][name]["networks"] == ["inside"]
    assert "ports" not in WORKER["services"]["worker"]


@each_service
def test_secrets_are_files_and_stand_in_no_variable(service: dict[str, Any]) -> None:
    for name, value in service.get("environment", {}).items():
        if re.search("PASSWORD|SECRET|TOKEN", name):
            assert name.endswith("_FILE"), name
            assert value == f"/run/secrets/{Path(value).name}"
            assert Path(value).name in service["secrets"]
        assert not re.search(r"://[^/@]*:[^/@]*@", str(value)), f"{name} holds a password"


@pytest.mark.parametrize("file", [BASE, WORKER], ids=["main", "worker"])
def test_secrets_lie_where_git_and_the_images_do_not_see_them(file: dict[str, Any]) -> None:
    assert {one["file"] for one in file["secrets"].values()} == {f"./secrets/{name}" for name in file["secrets"]}
    assert "docker/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    assert "docker/secrets" in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()


def test_every_image_from_elsewhere_is_pinned() -> None:
    images = {one["image"] for _, one in SERVICES if "build" not in one and not one["image"].startswith("hacrl-")}
    images |= {lines[0].split()[1] for name, lines in stages().items() if lines[0].split()[1] not in stages()}
    assert len(images) == 4
    for image in images:
        assert PINNED.fullmatch(image), image


def test_compose_starts_roles_that_the_images_know() -> None:
    ours = {name: one for name, one in BASE["services"].items() if one["image"].startswith("hacrl-")}
    assert set(ours) == set(preflight.ROLES)
    for name, one in ours.items():
        assert one["command"] == [name]
        assert one["healthcheck"]["test"][1:] == ["python", "-m", "hacrl_web.container", "health", name]
        assert one["environment"]["HACRL_SECRET_KEY_FILE"]
    for name in ("dispatcher", "watcher"):
        assert ours[name]["environment"]["HACRL_PULSE_FILE"].startswith("/tmp/")
    assert ours["worker"]["stop_grace_period"] == "60s"


def test_everybody_waits_for_the_web_which_waits_for_database_and_redis() -> None:
    waits = {name: set(one.get("depends_on", {})) for name, one in BASE["services"].items()}
    assert waits["web"] == {"database", "redis"}
    assert all(waits[name] == {"web"} for name in ("dispatcher", "watcher", "worker"))
    conditions = [c for one in BASE["services"].values() for c in one.get("depends_on", {}).values()]
    assert {condition["condition"] for condition in conditions} == {"service_healthy"}


def documented() -> dict[str, str]:
    """The variables of docs/environment.md with their rows."""
    rows = re.findall(r"^\| (`[^|]*)\|(.*)$", (ROOT / "docs" / "environment.md").read_text(), re.MULTILINE)
    return {name: row for names, row in rows for name in re.findall(r"`([A-Z_0-9]+)`", names)}


def test_settings_that_every_training_host_needs_reach_the_containers_there() -> None:
    needed = {name for name, row in documented().items() if "on every host" in row}
    assert {"HACRL_REWARD_NETWORK", "HACRL_LM_EVAL", "HACRL_JUDGE_ALLOW", "HACRL_ALGORITHMS"} <= needed
    for environment in (BASE["x-environment"], WORKER["services"]["worker"]["environment"]):
        assert {name: environment.get(name) for name in needed} == {name: f"${{{name}:-}}" for name in needed}


# Why the containers of compose do not get a documented variable from docker/.env.
NOT_PASSED = {
    **dict.fromkeys(("HACRL_DATA", "DATABASE_URL", "REDIS_URL"), "the file sets it itself"),
    **dict.fromkeys(("HACRL_SECRET_KEY", "DATABASE_PASSWORD", "REDIS_PASSWORD"), "a secret, given as a file"),
    "HACRL_OIDC_ISSUER": "with its secret in a compose file of one's own (docs/sign-in.md)",
    **dict.fromkeys(("HACRL_TRAINER_PREFIX", "HACRL_TRAINER_COMMAND", "RAY_ADDRESS"), "needs what the images lack"),
    **dict.fromkeys(("HACRL_PYTHON", "HACRL_TORCH_INDEX", "HACRL_VLLM"), "for the launcher's installation"),
    **dict.fromkeys(("HACRL_JUDGE_KEY", "HACRL_JUDGE_KEY_NAME"), "without the web server"),
    **dict.fromkeys(("HACRL_URL", "HACRL_TOKEN"), "for commands that call the API"),
    "HACRL_DEBUG": "refused in containers",
    "HACRL_WEB_EXTRAS": "for the building of the image",
}


def test_every_documented_variable_reaches_the_containers_or_has_a_reason_not_to() -> None:
    known, passed = documented(), BASE["x-environment"]
    assert set(NOT_PASSED) <= set(known)
    for name in set(known) - set(NOT_PASSED):
        assert re.fullmatch(rf"\$\{{{name}:?-.*\}}", passed.get(name, "")), name
    assert {name for name in NOT_PASSED if str(passed.get(name, "")).startswith(f"${{{name}")} == set()


def test_compose_sets_no_variable_that_is_not_documented() -> None:
    known = {*documented(), "HACRL_PULSE"}  # the latter is for the health checks of the images
    for _, one in SERVICES:
        if one["image"].startswith("hacrl-"):
            assert {name.removesuffix("_FILE") for name in one["environment"]} <= known


def test_gpu_file_adds_devices_to_the_worker_and_loosens_nothing() -> None:
    assert set(GPU["services"]) == {"worker"}
    worker = GPU["services"]["worker"]
    [device] = worker["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert not {"user", "read_only", "cap_add", "cap_drop", "security_opt", "privileged"} & set(worker)


def test_images_run_as_nobody_by_the_entry_point() -> None:
    found = stages()
    for target in ("web", "worker"):
        assert "USER 10001:10001" in found[target]
        assert found[target][-2:] == ['ENTRYPOINT ["python", "-m", "hacrl_web.container"]', f'CMD ["{target}"]']
        assert [line for line in found[target] if line.startswith("RUN")][-1].find("-c constraints.txt") > 0
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert '".[web,inspect${MORE_EXTRAS:+,$MORE_EXTRAS}]"' in " ".join(found["web"])
    assert found["web"].index("ARG MORE_EXTRAS=") < next(
        place for place, line in enumerate(found["web"]) if "MORE_EXTRAS:+" in line
    )
    assert BASE["services"]["web"]["build"]["args"] == {"MORE_EXTRAS": "${HACRL_WEB_EXTRAS:-}"}
    assert "mirrors" in extras
    needed = {re.match(r"[\w-]+", line)[0] for line in [*extras["web"], *extras["inspect"]]}  # type: ignore[index]
    assert not needed & {"torch", "accelerate", "peft", "vllm", "ray"}
    assert set(extras["inspect"]) <= set(extras["train"])
    assert "ARG EXTRAS=web,train,vllm,ray" in found["worker"]


def test_redis_takes_its_password_from_the_file_and_not_from_its_command_line(tmp_path: Path) -> None:
    """The very command of the compose file, with another server's name, port and file."""
    server = next((name for name in ("valkey-server", "redis-server") if _which(name)), None)
    if server is None:
        pytest.skip("no Redis server: apt-get install redis-server")
    password = tmp_path / "redis_password"
    password.write_text("s3cret\n")
    port = _free_port()
    shell, flag, script = BASE["services"]["redis"]["command"]
    script = script.replace("$$", "$").replace("/run/secrets/redis_password", str(password))
    script = script.replace("valkey-server", server).replace("dir /tmp", f"dir {tmp_path}\nport {port}")
    process = subprocess.Popen([shell, flag, script], stdout=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: b"+PONG" in _talk(port, "AUTH s3cret\r\nPING\r\n"), 20, pause_s=0.3)
        assert b"NOAUTH" in _talk(port, "PING\r\n")
        line = Path(f"/proc/{process.pid}/cmdline")
        assert not line.exists() or b"s3cret" not in line.read_bytes()
    finally:
        process.terminate()
        process.wait(60)


# ---- the entry point ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["shell"], ["health"], ["health", "shell"], ["web", "now"]])
def test_entry_point_starts_nothing_else(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert container.main(words) == 2
    assert "usage" in capsys.readouterr().err


def test_proxies_are_believed_only_where_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HACRL_PROXY_ADDRESSES", raising=False)
    assert "--no-proxy-headers" in preflight.command("web")
    monkeypatch.setenv("HACRL_PROXY_ADDRESSES", "10.0.0.7, 172.16.0.0/12")
    words = preflight.command("web", "::1", 81)
    assert words[words.index("--forwarded-allow-ips") + 1] == "10.0.0.7,172.16.0.0/12"
    assert "--no-proxy-headers" not in words
    assert (words[words.index("--host") + 1], words[words.index("--port") + 1]) == ("::1", "81")


def test_liveness_file_tells_a_process_that_works_from_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HACRL_PULSE_FILE", raising=False)
    assert liveness_file() is None
    path = tmp_path / "pulse"
    monkeypatch.setenv("HACRL_PULSE_FILE", str(path))
    assert "cannot be read" in container.liveness_health()
    path.touch()
    assert container.health("dispatcher") == ""
    os.utime(path, (0, time.time() - container.LIVENESS_S - 5))
    assert "no round for 6" in container.health("watcher")


def test_home_folder_is_made_on_a_new_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "data" / "home"))
    assert container.make_home_folder() == container.make_home_folder() == ""
    assert (tmp_path / "data" / "home").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    assert "write to the data volume" in container.make_home_folder()


def test_web_receives_bodies_in_the_data_volume_and_removes_unfinished_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HACRL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    places: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        """In place of the checks and migrations: which folder this process's children and successor write to."""
        code = "import tempfile; print(tempfile.gettempdir())"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
            places.append(child.communicate()[0].strip())
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(container.subprocess, "run", run)
    folder = tmp_path / "data" / "tmp"
    assert container.prepare_container("dispatcher") == 0
    assert not folder.exists()
    places.clear()
    assert container.prepare_container("web") == 0
    assert set(places) == {str(folder)}
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "unfinished.upload").write_text("half a bundle")
    assert container.prepare_container("web") == 0
    assert list(folder.iterdir()) == []
    monkeypatch.setenv("HACRL_DATA", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    assert "write to the data volume" in container.make_upload_folder()


@pytest.mark.full
@pytest.mark.slow
def test_containers_start_answer_their_health_checks_and_end_at_term(tmp_path: Path) -> None:
    """Web and dispatcher as compose starts them, over SQLite and without Redis."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**kept, "HACRL_DATA": str(tmp_path), "PYTHONPATH": str(ROOT), "HACRL_PORT": str(_free_port())}
    environment |= {"HACRL_PULSE_FILE": str(tmp_path / "pulse"), "HACRL_HOST": "box"}

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hacrl_web.container", *words]
        return subprocess.run(command, env=environment | more, capture_output=True, text=True, timeout=200, cwd="/")

    unsafe = run("web", HACRL_ALLOWED_HOSTS="hacrl.example.org")
    assert unsafe.returncode == 1
    assert "HACRL_TLS_PROXY=1" in unsafe.stderr
    assert "does not answer" in run("health", "web").stderr
    assert run("health", "dispatcher").returncode == 1
    started = {}
    try:
        for role in ("web", "dispatcher"):
            command = [sys.executable, "-m", "hacrl_web.container", role]
            started[role] = subprocess.Popen(command, env=environment, cwd="/")
            assert wait_until(lambda role=role: run("health", role).returncode == 0, 150, pause_s=0.3), role  # type: ignore[misc]
        assert "has written no heartbeat" in run("health", "worker").stderr
        environ = Path(f"/proc/{started['web'].pid}/environ")
        assert not environ.exists() or f"TMPDIR={tmp_path / 'tmp'}".encode() in environ.read_bytes().split(b"\0")
        for process in started.values():
            process.send_signal(signal.SIGTERM)
        # uvicorn ends by the signal itself, once it has closed its connections.
        assert {role: process.wait(60) for role, process in started.items()} == {
            "web": -signal.SIGTERM,
            "dispatcher": 0,
        }
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def _which(name: str) -> bool:
    return any(os.access(Path(folder) / name, os.X_OK) for folder in os.environ["PATH"].split(os.pathsep))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _talk(port: int, words: str) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as client:
            client.sendall(words.encode())
            time.sleep(0.2)
            return client.recv(1000)
    except OSError:
        return b""
