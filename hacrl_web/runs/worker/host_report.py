"""What the Workers page shows of each host: its devices and the runs on them, versions, warnings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hacrl_web.accounts.models import User
from hacrl_web.runs.models import HELD, Host, Run, TelemetryEvent
from hacrl_web.runs.worker.hosts import known_schema

CLOCK_LIMIT_S = 2.0  # a host's clock off by more: its events seem to be in another order
DISK_LIMIT = 0.95


@dataclass
class Gpu:
    """One GPU, and the visible runs whose processes hold memory on it."""

    device: dict[str, Any]
    runs: list[Run]
    num_others: int  # processes of other runs or programs


@dataclass
class HostCard:
    """One host. `host` is None if runs name a host that never wrote a heartbeat."""

    name: str
    host: Host | None
    runs: list[Run] = field(default_factory=list)
    num_others: int = 0  # runs of other projects
    web_schema: str = ""

    @property
    def is_silent(self) -> bool:
        return self.host is None or self.host.is_silent

    @property
    def device(self) -> dict[str, dict[str, Any]]:
        """The devices of the host by kind; the first of several GPUs."""
        return {one.get("kind", ""): one for one in reversed(self.host.devices if self.host else [])}

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
        """The problems of this host, in sentences."""
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
        disk = self.device.get("disk")
        if host.full_disk:
            texts.append(f"It takes no runs. {host.full_disk}")
        elif disk and disk["used_bytes"] > DISK_LIMIT * disk["total_bytes"]:
            texts.append("The disk of its data folder is nearly full: checkpoints will fail.")
        return texts


def host_cards(user: User) -> list[HostCard]:
    """Every host, with the runs it holds that the user may see."""
    cards = {host.name: HostCard(host.name, host, web_schema=known_schema()) for host in Host.objects.with_now()}
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
        run.trainer_pid = report.get("pid") if attempt == run.attempt else None  # not that of an earlier attempt
        card.runs.append(run)
    return list(cards.values())


def _started(runs: list[Run]) -> dict[Any, tuple[int, dict[str, Any]]]:
    """The last `started` event of each run: its attempt, and the device, versions and process that it names."""
    events = TelemetryEvent.objects.filter(run__in=[run.pk for run in runs], type="started").order_by("seq")
    return {pk: (attempt, payload) for pk, attempt, payload in events.values_list("run", "attempt", "payload")}


def add_devices(runs: list[Run]) -> None:
    """Set `devices` of each held run: the GPUs on which its process holds memory, else what its trainer or spec names.

    The number of runs does not change the number of queries.
    """
    held = [run for run in runs if run.state in HELD]
    on_gpus: dict[Any, list[str]] = {}
    for host in Host.objects.filter(name__in={run.worker_host for run in held}):
        card = HostCard(host.name, host, [run for run in held if run.worker_host == host.name])
        for gpu in card.gpus:
            for run in gpu.runs:
                on_gpus.setdefault(run.pk, []).append(f"GPU {gpu.device['index']}")
    started = _started(held)
    for run in held:
        attempt, report = started.get(run.pk, (0, {}))
        device = report.get("device") if attempt == run.attempt else None  # an earlier attempt may have had another
        setting = run.spec.get("compute", {}).get("device") or "unknown device"
        run.devices = ", ".join(on_gpus.get(run.pk, ())) or str(device or setting)
