"""/healthz, /readyz and /metrics: what monitoring reads, and who may read it."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from hacrl_web.accounts.tokens.service import make_token
from hacrl_web.ops.preflight import ROOT
from hacrl_web.runs.models import Drain, Host, Run, State, StatusChange, TelemetryEvent
from tests.support.web.factories import make_run, make_user
from tests.web.runs.telemetry.test_shipper import shipper, write_line

pytestmark = pytest.mark.django_db


def scraped(client: Client, **headers: str) -> dict[tuple[str, ...], float]:
    """Value by (name, value of each label)."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.content
    families = text_string_to_metric_families(answer.content.decode())
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_health_needs_no_login_and_readiness_names_what_does_not_answer(client: Client, monkeypatch) -> None:
    assert client.get("/healthz").content == b"ok\n"
    monkeypatch.setattr("hacrl_web.runs.live.monitoring.client", lambda: AnswersPing())
    assert client.get("/readyz").status_code == 200
    monkeypatch.undo()
    monkeypatch.setattr("hacrl_web.runs.live.monitoring.client", lambda: AnswersPing(fails=True))
    answer = client.get("/readyz")
    assert (answer.status_code, answer.content) == (503, b"no answer: Redis\n")


class AnswersPing:
    """A client of Redis."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def ping(self) -> None:
        if self.fails:
            from redis.exceptions import ConnectionError as Refused

            raise Refused


def test_metrics_are_for_staff_by_session_or_token(client: Client) -> None:
    assert client.get("/metrics").status_code == 401
    ada, boss = make_user("ada"), make_user("boss", is_staff=True)
    client.force_login(ada)
    assert client.get("/metrics").status_code == 403
    client.force_login(boss)
    assert ("hacrl_queue_length",) in scraped(client)
    text = make_token(boss, name="prometheus", scopes=["read"], days=7)[1]
    assert ("hacrl_queue_length",) in scraped(Client(), Authorization=f"Bearer {text}")
    theirs = make_token(ada, name="mine", scopes=["read"], days=7)[1]
    assert Client().get("/metrics", headers={"Authorization": f"Bearer {theirs}"}).status_code == 403
    assert Client().get("/metrics", headers={"Authorization": "Bearer hacrl_no"}).status_code == 401


def test_figures_agree_with_the_database(client: Client) -> None:
    boss = make_user("boss", is_staff=True)
    client.force_login(boss)
    waiting, running = make_run(boss), make_run(boss)
    now = timezone.now()
    StatusChange.objects.filter(run=waiting).delete()
    waiting.status_changes.create(to_state=State.QUEUED, attempt=0, at=now - timedelta(minutes=5))
    Run.objects.filter(pk=running.pk).update(
        state=State.RUNNING, worker_host="gpu-1", heartbeat_at=now - timedelta(seconds=7)
    )
    TelemetryEvent.objects.create(run=running, seq=1, attempt=1, type="log", payload={}, time=time.time() - 30)
    gpu = {"kind": "gpu", "index": 1, "name": "H200", "total_bytes": 100, "used_bytes": 40, "used": 0.5}
    cpu, disk = {"kind": "cpu", "used": 0.25}, {"kind": "disk", "total_bytes": 9, "used_bytes": 3}
    Host.objects.create(name="gpu-1", devices=[gpu, cpu, disk], drain=Drain.FINISH, last_seen=now)
    figures = scraped(client)
    assert figures["hacrl_runs", "running"] == figures["hacrl_queue_length",] == 1
    assert figures["hacrl_runs", "lost"] == 0
    assert figures["hacrl_queue_oldest_seconds",] == pytest.approx(300, abs=20)
    assert figures["hacrl_supervisor_silent_seconds",] == pytest.approx(7, abs=20)
    assert figures["hacrl_telemetry_age_seconds",] == pytest.approx(30, abs=20)
    assert figures["hacrl_run_transitions_total", "none", "queued"] >= 1
    assert figures["hacrl_host_used_bytes", "gpu1", "gpu-1"] == 40
    assert figures["hacrl_host_total_bytes", "disk", "gpu-1"] == 9
    assert figures["hacrl_host_gpu_used_ratio", "gpu1", "gpu-1"] == 0.5
    assert figures["hacrl_host_cpu_used_ratio", "gpu-1"] == 0.25
    assert figures["hacrl_host_drained", "gpu-1"] == figures["hacrl_host_runs", "gpu-1"] == 1


def test_faults_are_counted_and_lag_is_that_of_storing_alone(client: Client) -> None:
    boss = make_user("boss", is_staff=True)
    client.force_login(boss)
    assert scraped(client)["hacrl_faults_total", "failed"] == 0
    run, other = make_run(boss), make_run(boss)
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING, attempt=1, interruptions=2)
    run.refresh_from_db()
    run.run_dir.mkdir(parents=True, exist_ok=True)
    # Written 40 s ago and stored now. The third goes back to an earlier step; the fourth has a step that is no number.
    old = time.time() - 40
    write_line(run, seq=1, attempt=1, time=old, type="log", level="warning", message="m", incident="out of memory")
    write_line(run, seq=2, attempt=1, time=old, type="metrics", step=5, agent="A", values={"x": 1.0})
    write_line(run, seq=3, attempt=1, time=old, type="metrics", step=4, agent="A", values={"x": 1.0})
    write_line(run, seq=4, attempt=1, time=old, type="rollout", step="x")
    shipper(run).ship()
    for state in (State.FAILED, State.LOST, State.LOST):
        other.status_changes.create(to_state=state, attempt=1)
    figures = scraped(client)
    kinds = ("failed", "lost", "interrupted", "incident", "refused event")
    assert [figures["hacrl_faults_total", kind] for kind in kinds] == [1, 2, 2, 1, 2]
    assert figures["hacrl_telemetry_lag_seconds",] == pytest.approx(40, abs=15)
    write_line(run, seq=5, attempt=1, time=time.time(), type="log", level="info", message="m")
    shipper(run).ship()
    assert scraped(client)["hacrl_telemetry_lag_seconds",] < 15  # a silent trainer is no lag
    assert scraped(client)["hacrl_faults_total", "refused event"] == 2


def test_dashboard_and_docs_name_the_metrics_that_exist(client: Client) -> None:
    client.force_login(make_user("boss", is_staff=True))
    text = client.get("/metrics").content.decode()
    families = {family.name for family in text_string_to_metric_families(text)}
    existing = families | {f"{name}_total" for name in families}
    dashboard = (ROOT / "docker/grafana-dashboard.json").read_text()
    table = "\n".join(re.findall(r"^\| `hacrl_.*$", (ROOT / "docs/deploy.md").read_text(), re.MULTILINE))
    for text in (dashboard, table):
        named = set(re.findall(r"\bhacrl_[a-z_]+", text))
        assert named
        assert named <= existing
