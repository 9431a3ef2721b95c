"""The Workers page: each host with its devices, what holds them, and what is wrong with it."""

from __future__ import annotations

import re
from datetime import timedelta
from types import SimpleNamespace

import psutil
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from hacrl_web.ops import devices
from hacrl_web.ops.devices import gpus
from hacrl_web.runs.models import Host, Run, State, TelemetryEvent
from hacrl_web.runs.worker.host_report import HostCard, host_cards
from hacrl_web.runs.worker.hosts import HeartbeatThread, host_name, known_schema
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run, make_user

GPU = {"kind": "gpu", "index": 0, "name": "Test GPU", "total_bytes": 80 * 2**30, "used_bytes": 20 * 2**30, "used": 0.5}


class FakeNvml:
    """NVML on a host with one GPU that does not report its load."""

    class NVMLError(Exception):
        pass

    def __init__(self, processes):
        self.processes = processes

    def nvmlInit(self):
        pass

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=80 * 2**30, used=20 * 2**30)

    def nvmlDeviceGetName(self, handle):
        return "Test GPU"

    def nvmlDeviceGetUtilizationRates(self, handle):
        raise self.NVMLError

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return self.processes


def test_gpus_are_read_with_their_processes(monkeypatch):
    me = psutil.Process()
    held = SimpleNamespace(pid=me.pid, usedGpuMemory=2**30)
    gone = SimpleNamespace(pid=2**22 - 1, usedGpuMemory=1)
    monkeypatch.setattr(devices, "pynvml", FakeNvml([held, gone]))
    devices._has_nvml.cache_clear()
    (gpu,) = gpus()
    devices._has_nvml.cache_clear()
    assert {key: gpu[key] for key in ("name", "total_bytes", "used")} == {
        "name": "Test GPU",
        "total_bytes": 80 * 2**30,
        "used": None,
    }
    assert gpu["processes"][0] == {
        "pid": me.pid,
        "used_bytes": 2**30,
        "ancestors": [one.pid for one in me.parents()],
    }
    assert gpu["processes"][1]["ancestors"] == []


def test_host_without_a_driver_has_no_gpu(monkeypatch):
    broken = FakeNvml([])
    monkeypatch.setattr(broken, "nvmlInit", lambda: (_ for _ in ()).throw(FakeNvml.NVMLError()), raising=False)
    for found in (None, broken):
        monkeypatch.setattr(devices, "pynvml", found)
        devices._has_nvml.cache_clear()
        assert gpus() == []
    devices._has_nvml.cache_clear()


@pytest.mark.django_db(transaction=True)
def test_heartbeat_writes_the_devices():
    thread = HeartbeatThread()
    thread.start()
    try:
        assert wait_until(lambda: bool(Host.objects.filter(name=host_name()).exclude(devices=[])))
    finally:
        thread.end()
        thread.join(60)
    kinds = [device["kind"] for device in Host.objects.get().devices]
    assert kinds[-3:] == ["cpu", "memory", "disk"]
    assert Host.objects.get().versions["python"]


def host(**changes) -> Host:
    values = {"name": "trainbox", "last_seen": timezone.now(), "clock_offset_s": 0.1, "schema": known_schema()}
    return Host.objects.create(**{**values, **changes})


FULL = {"kind": "disk", "total_bytes": 100, "used_bytes": 96}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"last_seen": timezone.now() - timedelta(days=31)}, "No heartbeat"),
        ({"clock_offset_s": 2.5}, "2.5 s ahead of"),
        ({"clock_offset_s": -3600.0}, "3600.0 s behind"),
        ({"schema": "0004_old"}, "older than this web's"),
        ({"schema": "0006_new"}, "newer than this web's"),
        ({"devices": [FULL]}, "nearly full"),
        ({"devices": [FULL | {"full": "The disk is full."}]}, "It takes no runs. The disk is full."),
    ],
)
def test_what_is_wrong_with_a_host_is_one_sentence(changes, words):
    host(**{"schema": "0005_here"} | changes)
    said = HostCard("trainbox", Host.objects.with_now().get(), web_schema="0005_here").warnings
    assert words in said[0] if words else said == []
    assert len(said) < 2
    assert "never wrote a heartbeat" in HostCard("other", None).warnings[0]


def hold(run: Run, name: str, pid: int) -> Run:
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING, attempt=1, worker_host=name, worker_pid=pid)
    run.refresh_from_db()
    return run


@pytest.mark.django_db
def test_gpu_names_the_run_whose_process_holds_it():
    owner = make_user()
    held, idle = hold(make_run(owner), "trainbox", 111), hold(make_run(owner), "trainbox", 222)
    processes = [{"pid": 900, "used_bytes": 1, "ancestors": [111, 1]}, {"pid": 901, "used_bytes": 1, "ancestors": [1]}]
    host(devices=[{**GPU, "processes": processes}])
    (card,) = host_cards(owner)
    (gpu,) = card.gpus
    assert [run.pk for run in gpu.runs] == [held.pk]
    assert gpu.num_others == 1
    assert {run.pk for run in card.runs} == {held.pk, idle.pk}


@pytest.mark.django_db
def test_runs_of_others_are_counted_and_not_named(client):
    stranger = make_user()
    hold(make_run(make_user(), name="swan of the owner"), "trainbox", 111)
    processes = [{"pid": 900, "used_bytes": 1, "ancestors": [111]}]
    host(devices=[{**GPU, "processes": processes}])
    client.force_login(stranger)
    page = client.get("/workers/").content.decode()
    assert "swan of the owner" not in page
    assert "1 run of other projects." in page
    assert "1 other process" in page


@pytest.mark.django_db
def test_page_shows_devices_versions_and_what_the_trainer_said(client):
    owner = make_user()
    run = hold(make_run(owner, name="my run"), "trainbox", 111)
    for seq, version in ((1, "2.12.0"), (2, "2.13.0")):
        payload = {"device": "NVIDIA H100", "versions": {"python": "3.11.9", "torch": version}, "pid": 777}
        TelemetryEvent.objects.create(run=run, seq=seq, attempt=1, type="started", step=0, payload=payload, time=1.0)
    cpu = {"kind": "cpu", "name": "Fast CPU", "cores": 16, "used": 0.25}
    host(devices=[{**GPU, "processes": []}, cpu], versions={"python": "3.11.9", "celery": "5.7.0"})
    client.force_login(owner)
    page = client.get("/workers/").content.decode()
    for text in (
        "Test GPU",
        "20.0 GiB",
        "80.0 GiB",
        "load 50.0 %",
        "16 cores; load 25.0 %",
        "torch 2.13.0",
        "celery 5.7.0",
    ):
        assert text in page, text
    assert ">111<" in page  # the worker's process
    assert ">777<" in page  # and the trainer's beside it
    Run.objects.filter(pk=run.pk).update(attempt=2)  # whose trainer has not spoken yet
    assert ">777<" not in client.get("/workers/").content.decode()
    assert "torch 2.12.0" not in page
    assert "NVIDIA H100" in page


def devices_at_home(client) -> dict[str, str]:
    """The device that Home names for each live run, by the run's name."""
    rows = re.findall(r"<article[^>]* data-run.*?</article>", client.get("/").content.decode(), re.DOTALL)
    cells = {
        re.search(r"/runs/[^>]*>([^<]*)<", row)[1]: re.search(r'data-show="device">(.*?)</span>', row) for row in rows
    }
    return {name: re.sub(r"<[^>]+>", " ", cell[1]).strip() for name, cell in cells.items() if cell}


@pytest.mark.django_db
class TestDevicesAtHome:
    def test_row_names_the_host_and_what_its_process_holds_there(self, client):
        owner = make_user()
        hold(make_run(owner, name="on two"), "trainbox", 111)
        hold(make_run(owner, name="same pid elsewhere"), "otherbox", 111)
        spread = [{**GPU, "index": index, "processes": [{"pid": 9, "ancestors": [111]}]} for index in (0, 3)]
        host(devices=spread)
        client.force_login(owner)
        shown = devices_at_home(client)
        assert shown["on two"].split() == ["trainbox", "·", "GPU", "0,", "GPU", "3"]
        assert shown["same pid elsewhere"].split()[0] == "otherbox"
        assert "GPU" not in shown["same pid elsewhere"]

    def test_trainer_says_it_where_no_process_does_and_the_spec_before_it_has_spoken(self, client):
        owner = make_user()
        run = hold(make_run(owner, name="my run"), "trainbox", 111)
        asked = run.spec["compute"]["device"]
        client.force_login(owner)
        assert devices_at_home(client)["my run"].split() == ["trainbox", "·", asked]
        payload = {"device": "NVIDIA H100", "pid": 777}
        TelemetryEvent.objects.create(run=run, seq=1, attempt=1, type="started", step=0, payload=payload, time=1.0)
        assert devices_at_home(client)["my run"].split() == ["trainbox", "·", "NVIDIA", "H100"]
        Run.objects.filter(pk=run.pk).update(attempt=2)  # maybe on another device
        assert devices_at_home(client)["my run"].split() == ["trainbox", "·", asked]

    @pytest.mark.parametrize("path", ["/", "/workers/"])
    def test_more_runs_cost_no_more_queries(self, client, path):
        owner = make_user()
        host(devices=[{**GPU, "processes": [{"pid": 9, "ancestors": [1]}]}])
        client.force_login(owner)
        counts = []
        for number in range(1, 7):
            hold(make_run(owner, name=f"run {number}"), "trainbox", number)
            with CaptureQueriesContext(connection) as queries:
                client.get(path)
            counts.append(len(queries))
        assert counts[-1] == counts[1], counts


@pytest.mark.django_db
def test_live_parts_of_the_page_have_names_of_their_own(client):
    """workers.js exchanges them by these names."""
    for name in ("a", "b"):
        host(name=name)
    client.force_login(make_user())
    names = re.findall(r'data-live="([^"]+)"', client.get("/workers/").content.decode())
    assert len(names) == len(set(names)) == 9
