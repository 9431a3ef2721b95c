"""What monitoring reads: /healthz, /readyz, and /metrics in Prometheus' text format.

Each web process answers for the whole installation, from the database; only the sockets are its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.db.models import Count, Max, Min
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from hacrl_web.runs.live.broadcaster import socket_count
from hacrl_web.runs.live.counts import CHANGE, FAULTS, Counts, all_counts
from hacrl_web.runs.messages.pubsub import client
from hacrl_web.runs.models import HELD, Host, Run, State, StatusChange, TelemetryEvent
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.middleware import refusal_response

FOR_STAFF = "Metrics are for staff: log in, or send the API token of a member of staff."


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as this process answers; it asks nothing of others."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 if the database and Redis answer, else 503 with the names of those that do not."""
    missing = []
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        missing.append("database")
    try:
        client().ping()
    except RedisError:
        missing.append("Redis")
    text = f"no answer: {', '.join(missing)}\n" if missing else "ok\n"
    return HttpResponse(text, status=503 if missing else 200, content_type="text/plain")


@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The installation in Prometheus' text format; for staff, by session or API token."""
    if not request.user.is_authenticated:
        answer = refusal_response(request, FieldErrors.single("not_logged_in", FOR_STAFF, status=401))
        answer["WWW-Authenticate"] = "Bearer"
        return answer
    if not request.user.is_staff:
        return refusal_response(request, FieldErrors.single("not_allowed", FOR_STAFF, status=403))
    registry = CollectorRegistry()
    registry.register(Installation())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class Installation(Collector):
    """Runs, queue, telemetry, hosts and their devices, as the database has them now."""

    def collect(self) -> Iterator[Metric]:
        counts = all_counts()
        yield from self._runs(counts)
        yield from self._faults(counts)
        yield from self._telemetry()
        yield from self._hosts()
        yield GaugeMetricFamily("hacrl_sockets", "Open WebSockets of the web process that answers.", socket_count())

    def _runs(self, counts: Counts) -> Iterator[Metric]:
        runs = GaugeMetricFamily("hacrl_runs", "Runs by state.", labels=["state"])
        by_state = dict(Run.objects.order_by().values_list("state").annotate(Count("pk")))
        for state in State.values:
            runs.add_metric([state], by_state.get(state, 0))
        yield runs
        waiting = Run.objects.in_queue().order_by()
        yield GaugeMetricFamily("hacrl_queue_length", "Runs that wait for a worker.", waiting.count())
        oldest = StatusChange.objects.filter(run__in=waiting, to_state=State.QUEUED).values("run")
        since = oldest.annotate(last=Max("at")).aggregate(first=Min("last"))["first"]
        age = (timezone.now() - since).total_seconds() if since else 0.0
        yield GaugeMetricFamily("hacrl_queue_oldest_seconds", "How long the first of them has waited.", age)
        changes = CounterMetricFamily(
            "hacrl_run_transitions", "Changes of state; to starting: claims, to lost: workers that went silent.",
            labels=["from", "to"],
        )  # fmt: skip
        for (kind, before, after), count in counts.items():
            if kind == CHANGE:
                changes.add_metric([before or "none", after], count)
        yield changes

    def _faults(self, counts: Counts) -> Iterator[Metric]:
        faults = CounterMetricFamily(
            "hacrl_faults", "Faults of runs, deleted ones too. interrupted: a trainer died and its run was requeued; "
            "lost: its worker went silent; incident: trouble that a trainer dealt with; refused event: a warning was "
            "stored in its place.", labels=["kind"],
        )  # fmt: skip
        for state in (State.FAILED, State.LOST):
            ends = (count for (kind, _, after), count in counts.items() if kind == CHANGE and after == state)
            faults.add_metric([state], sum(ends))
        for name in FAULTS:
            faults.add_metric([name], counts[name, "", ""])
        yield faults

    def _telemetry(self) -> Iterator[Metric]:
        held = list(Run.objects.filter(state__in=HELD).values_list("pk", "heartbeat_at"))
        lag = Run.objects.filter(state__in=HELD).aggregate(most=Max("telemetry_lag_s"))["most"]
        yield GaugeMetricFamily(
            "hacrl_telemetry_lag_seconds",
            "From the writing of an event to its storing: of the newest batch of the run where it is longest.",
            lag or 0.0,
        )
        now = timezone.now()
        beats = [(now - beat).total_seconds() for _, beat in held if beat]
        yield GaugeMetricFamily(
            "hacrl_supervisor_silent_seconds", "The oldest heartbeat of the runs that a worker holds.",
            max(beats, default=0.0),
        )  # fmt: skip
        newest = [
            TelemetryEvent.objects.filter(run=pk).order_by("-seq").values_list("time", flat=True).first()
            for pk, _ in held
        ]
        yield GaugeMetricFamily(
            "hacrl_telemetry_age_seconds",
            "Age of the newest stored event of the run where it is oldest: the trainer's silence and the lag.",
            max((max(0.0, time.time() - each) for each in newest if each is not None), default=0.0),
        )

    def _hosts(self) -> Iterator[Metric]:
        def of_host(name: str, text: str, *more: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"hacrl_host_{name}", text, labels=["host", *more])

        silent = of_host("silent_seconds", "Seconds since the host's last heartbeat.")
        drained = of_host("drained", "1: the host takes no new runs.")
        held = of_host("runs", "Runs that the host holds.")
        busy = of_host("cpu_used_ratio", "Share of all cores in use.")
        used = of_host("used_bytes", "Memory, disk or GPU memory in use.", "device")
        total = of_host("total_bytes", "Memory, disk or GPU memory.", "device")
        load = of_host("gpu_used_ratio", "Share of time in which the GPU worked.", "device")
        by_host = dict(Run.objects.filter(state__in=HELD).order_by().values_list("worker_host").annotate(Count("pk")))
        for host in Host.objects.with_now():
            if host.silent_s is not None:
                silent.add_metric([host.name], host.silent_s)
            drained.add_metric([host.name], float(host.is_drained))
            held.add_metric([host.name], by_host.get(host.name, 0))
            for device in host.devices:
                name = f"gpu{device['index']}" if device["kind"] == "gpu" else device["kind"]
                if device["kind"] == "cpu":
                    busy.add_metric([host.name], device["used"])
                    continue
                used.add_metric([host.name, name], device["used_bytes"])
                total.add_metric([host.name, name], device["total_bytes"])
                if device.get("used") is not None:
                    load.add_metric([host.name, name], device["used"])
        yield from (silent, drained, held, busy, used, total, load)
