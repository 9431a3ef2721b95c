"""Hosts: the heartbeat row, the identity of processes, and a drained host that takes nothing."""

import os
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from hacrl_web.runs.models import SILENT_S, Drain, Host, Run, Worker
from hacrl_web.runs.worker import hosts
from hacrl_web.runs.worker.host_report import host_cards
from hacrl_web.runs.worker.hosts import (
    HeartbeatThread,
    any_has,
    boot_id,
    host_name,
    known_schema,
    process_start,
    write_heartbeat,
)
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run, make_user


@pytest.mark.django_db
class TestBeat:
    def test_beat_writes_who_and_when_by_the_databases_clock(self):
        host = write_heartbeat(devices=[{"kind": "cpu"}])
        assert (host.name, host.boot_id, host.devices) == (host_name(), boot_id(), [{"kind": "cpu"}])
        silent_s = Host.objects.with_now().get().silent_s
        assert silent_s is not None
        assert silent_s < 60

    @pytest.mark.parametrize(("seconds", "is_silent"), [(SILENT_S / 2, False), (2 * SILENT_S, True)])
    def test_silence_is_told_by_the_databases_clock_not_by_the_webs(self, monkeypatch, seconds, is_silent):
        write_heartbeat()
        Host.objects.update(last_seen=Now() - timedelta(seconds=seconds))
        monkeypatch.setattr(timezone, "now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
        (card,) = host_cards(make_user())
        assert card.is_silent == is_silent

    def test_clock_that_is_an_hour_ahead_is_shown_as_its_offset(self, monkeypatch):
        real = time.time
        monkeypatch.setattr(hosts.time, "time", lambda: real() + 3600)
        assert write_heartbeat().clock_offset_s == pytest.approx(3600, abs=5)

    def test_later_beats_keep_the_drain(self):
        write_heartbeat()
        Host.objects.update(drain=Drain.FINISH, drain_reason="ada: new disks")
        assert write_heartbeat().is_drained
        assert Host.objects.count() == 1


@pytest.mark.django_db
def test_drained_host_takes_no_run_and_others_do():
    run = make_run()
    Host.objects.create(name="full", drain=Drain.FINISH)
    Host.objects.create(name="free")
    assert Run.objects.claim(run.pk, Worker("full", 1, 0.0, "folder")) is None
    assert Run.objects.claim(run.pk, Worker("free", 1, 0.0, "folder")) is not None


@pytest.mark.django_db
def test_packages_of_a_silent_host_count_only_while_no_host_is_live():
    assert any_has("ray")  # nobody has reported yet
    gone = Host.objects.create(name="gone", versions={"ray": "2"}, last_seen=timezone.now() - timedelta(hours=1))
    assert any_has("ray")
    Host.objects.create(name="live", versions={"torch": "2"}, last_seen=timezone.now())
    assert any_has("torch")
    assert not any_has("ray")
    Host.objects.filter(pk=gone.pk).update(last_seen=timezone.now())
    assert any_has("ray")


@pytest.mark.django_db(transaction=True)
def test_thread_beats_and_ends():
    thread = HeartbeatThread()
    thread.start()
    try:
        assert wait_until(lambda: Host.objects.filter(name=host_name(), last_seen__isnull=False).exists())
        assert wait_until(lambda: Host.objects.get().schema == known_schema())
    finally:
        thread.end()
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.django_db(transaction=True)
def test_heartbeat_that_fails_does_not_end_the_thread(monkeypatch):
    real, tries = hosts.devices, []

    def odd():
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("an odd answer of a driver")
        return real()

    monkeypatch.setattr(hosts, "devices", odd)
    monkeypatch.setattr(hosts, "HEARTBEAT_S", 0.01)
    thread = HeartbeatThread()
    thread.start()
    try:
        assert wait_until(lambda: Host.objects.filter(schema=known_schema()).exists())
    finally:
        thread.end()
        thread.join(60)
    assert len(tries) >= 2


def test_process_is_known_by_its_start_and_a_zombie_is_none():
    process = subprocess.Popen(["sleep", "60"])
    try:
        mine, its = process_start(os.getpid()), process_start(process.pid)
        assert mine is not None
        assert its is not None
        assert mine < its <= mine + 24 * 3600
        process.kill()
        assert wait_until(lambda: process_start(process.pid) is None)  # a zombie: its parent has not waited for it yet
    finally:
        process.kill()
        process.wait()
