"""What the Workers page shows of each host: devices, who holds what, versions, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hacrl_web.runs.models import HELD, Host, Run, TelemetryEvent
from hacrl_web.runs.worker.hosts import SILENT_S, known_schema

CLOCK_LIMIT_S = 2.0  # a host's clock off by more: times of its events stand in the wrong order
DISK_LIMIT = 0.95


@dataclass
class Gpu:
    """One GPU, and the visible runs whose processes hold memory on it."""

    device: dict[str, Any]
    runs: list[Run]
    num_others: int  # processes of anybody else


@dataclass
class HostCard:
    """One host. `host` is None where runs name a host that never wrote its row."""

    name: str
    host: Host | None
    runs: list[Run] = field(default_factory=list)
    num_others: int = 0  # runs of other projects
    web_schema: str = ""

    @property
    def is_silent(self) -> bool:
        return self.host is None or self.host.silent_s is None or self.host.silent_s > SILENT_S

    def device(self, kind: str) -> dict[str, Any] | None:
        devices = self.host.devices if self.host else []
        return next((device for device in devices if device.get("kind") == kind), None)

    @property
    def cpu(self) -> dict[str, Any] | None:
        return self.device("cpu")

    @property
    def memory(self) -> dict[str, Any] | None:
        return self.device("memory")

    @property
    def disk(self) -> dict[str, Any] | None:
        return self.device("disk")

    @property
    def gpus(self) -> list[Gpu]:
        cards = []
        for device in self.host.devices if self.host else []:
            if device.get("kind") == "gpu":
                holders = [{one["pid"], *one["ancestors"]} for one in device.get("processes", [])]
                runs = [run for run in self.runs if any(run.worker_pid in pids for pids in holders)]
                ours = {run.worker_pid for run in runs}
                cards.append(Gpu(device, runs, sum(not pids & ours for pids in holders)))
        return cards

    @property
    def warnings(self) -> list[str]:
        """What is wrong with this host, in words."""
        host, texts = self.host, []
        if host is None or host.last_seen is None:
            return ["It never wrote a heartbeat: its worker is older than this version, or not running."]
        if self.is_silent:
            texts.append("No heartbeat: the worker is down, or the database is out of its reach. Its runs wait for it.")
        if host.clock_offset_s is not None and abs(host.clock_offset_s) > CLOCK_LIMIT_S:
            way = "ahead of" if host.clock_offset_s > 0 else "behind"
            texts.append(
                f"Its clock is {abs(host.clock_offset_s):.1f} s {way} the database's: times of its events are off. "
                "Run a time service there."
            )
        if host.schema and host.schema != self.web_schema:
            age = "older" if host.schema < self.web_schema else "newer"
            texts.append(
                f"Its code is {age} than this web's (schema {host.schema}, here {self.web_schema}): "
                f"update {'it' if age == 'older' else 'the web'} and restart."
            )
        disk = self.disk
        if disk and disk["used_bytes"] > DISK_LIMIT * disk["total_bytes"]:
            texts.append("The disk of its data folder is nearly full: checkpoints will fail.")
        return texts


@cache
def web_schema() -> str:
    """Of the code that this process runs."""
    return known_schema()


def host_cards(user: Any) -> list[HostCard]:
    """Every host, with the runs it holds that the user may see."""
    cards = {host.name: HostCard(host.name, host, web_schema=web_schema()) for host in Host.objects.with_now()}
    visible = set(Run.objects.visible_to(user).filter(state__in=HELD).values_list("pk", flat=True))
    held = list(Run.objects.filter(state__in=HELD).order_by("started_at"))
    started = _started([run for run in held if run.pk in visible])
    for run in held:
        if run.pk not in visible:
            if run.worker_host in cards:
                cards[run.worker_host].num_others += 1
            continue
        name = run.worker_host or "unknown host"
        card = cards.setdefault(name, HostCard(name, None))
        attempt, report = started.get(run.pk, (0, {}))
        run.started_with = report
        run.trainer_pid = report.get("pid") if attempt == run.attempt else None  # not that of an attempt before
        card.runs.append(run)
    return list(cards.values())


def _started(runs: list[Run]) -> dict[Any, tuple[int, dict[str, Any]]]:
    """What each run's trainer last said of its device, versions and process, and in which attempt."""
    events = TelemetryEvent.objects.filter(run__in=[run.pk for run in runs], type="started").order_by("seq")
    return {pk: (attempt, payload) for pk, attempt, payload in events.values_list("run", "attempt", "payload")}


def add_devices(runs: list[Run]) -> None:
    """Give each run that is held its `devices`: where its process holds memory, or what its trainer or its spec says.

    Their number does not change the number of queries.
    """
    held = [run for run in runs if run.state in HELD]
    if not held:
        return
    cards = {
        host.name: HostCard(host.name, host) for host in Host.objects.filter(name__in={r.worker_host for r in held})
    }
    for run in held:
        if run.worker_host in cards:
            cards[run.worker_host].runs.append(run)
    on_gpus: dict[Any, list[str]] = {}
    for card in cards.values():
        for gpu in card.gpus:
            for run in gpu.runs:
                on_gpus.setdefault(run.pk, []).append(f"GPU {gpu.device['index']}")
    started = _started(held)
    for run in held:
        attempt, report = started.get(run.pk, (0, {}))
        setting = run.spec.get("compute", {}).get("device", "")
        device = report.get("device") if attempt == run.attempt else None  # an attempt before may have had another
        run.devices = ", ".join(on_gpus.get(run.pk, ())) or str(device or setting or "unknown device")
