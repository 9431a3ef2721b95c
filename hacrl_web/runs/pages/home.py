"""Home, and what open pages poll."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.demo_state import preparation
from hacrl_web.runs.models import HELD, QUEUE_ORDER, Run, State
from hacrl_web.runs.worker.host_report import add_devices

ACTIVE = (State.STARTING, State.RUNNING, State.PAUSED, State.LOST)
FINISHED_SHOWN = 10


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Running now, queue, failed today, and what finished last; in an empty project, the way to the first run."""
    runs = Run.objects.listed_for(request.user).select_related("benchmark", "group")
    unarchived = runs.filter(archived_at=None).order_by("-finished_at")
    since = timezone.now() - timedelta(hours=24)
    running = list(runs.filter(state__in=ACTIVE).order_by("-started_at"))
    add_devices(running)
    first_steps = (
        ("Register the models to train", LanguageModel, "registry:model_create"),
        ("Put them into an agent group", AgentGroup, "registry:group_create"),
        ("Add a benchmark: questions with answers", Benchmark, "registry:benchmark_create"),
    )
    start: list[dict[str, Any]] = [
        {"label": label, "done": model.objects.listed_for(request.user).exists(), "name": name}
        for label, model, name in first_steps
    ]
    context = {
        "running": running,
        "queue": runs.filter(state=State.QUEUED).order_by(*QUEUE_ORDER)[:20],
        "failed": unarchived.filter(state=State.FAILED, finished_at__gte=since)[:FINISHED_SHOWN],
        "finished": unarchived.filter(state=State.COMPLETED)[:FINISHED_SHOWN],
        "has_runs": runs.exists(),
        "demo": preparation() if request.user.is_staff else None,
        "start": [*start, {"label": "Start a run", "done": False, "name": "runs:run_create"}],
    }
    return render(request, "runs/pages/home.html", context)


@require_GET
def pulse(request: HttpRequest) -> JsonResponse:
    """What open pages poll: the count of running runs in their header, and what a demo prepares."""
    demo = preparation() if request.user.is_staff else None
    running = Run.objects.listed_for(request.user).filter(state__in=HELD).count()
    values = {"running": running, "demo": demo.activity if demo else ""}
    return JsonResponse(values, headers={"Cache-Control": "no-store"})
