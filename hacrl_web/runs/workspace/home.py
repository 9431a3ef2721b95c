"""Home, and what open pages poll."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from hacrl_web.accounts.models import User
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import HELD, Run, RunQuerySet, State, Sweep, TelemetryEvent
from hacrl_web.runs.run.results import with_results
from hacrl_web.runs.worker.host_report import add_devices
from hacrl_web.runs.workspace.demo_state import failure_text, preparation

NEXT_SHOWN = 3
LIVE = (State.STARTING, State.RUNNING, State.LOST)
ENDED = (State.COMPLETED, State.STOPPED)
FAILURES_SHOWN_FOR = timedelta(hours=24)
RUNS_SHOWN = 10
MAX_LIVE = 12


@dataclass(frozen=True)
class Matter:
    """What waits for a user: runs in one state, for one reason."""

    state: State
    reason: str
    runs: tuple[Run, ...]


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Live runs, what waits for the user, the queue, the newest runs; in an empty project, the way to the first run."""
    now = timezone.now()
    runs = Run.objects.listed_for(request.user)
    with_names = runs.select_related("sweep", "project")
    live = list(with_names.filter(state__in=LIVE).order_by("-started_at")[:MAX_LIVE])
    add_devices(live)
    queue = list(runs.in_queue().defer("spec"))
    recent = _newest_ended(with_names.filter(archived_at=None))
    drafts = list(Sweep.objects.listed_for(request.user).exclude(draft_digest="")[:RUNS_SHOWN])
    has_runs = bool(live or queue or recent or drafts) or runs.exists()
    start = [] if has_runs else _first_steps(request.user)
    context = {
        "live": with_results(live, now),
        "num_queued": len(queue),
        "next_queued": queue[:NEXT_SHOWN],
        "draft_sweeps": drafts,
        "matters": matters(_waiting_for_user(runs.filter(archived_at=None).select_related("project"))),
        "recent": with_results(recent, now),
        "has_runs": has_runs,
        "demo": preparation() if request.user.is_staff else None,
        "start": start,
        "next_step": next((step for step in start if not step["done"]), None),
        "demo_failure": failure_text() if request.user.is_staff else "",
    }
    return render(request, "runs/workspace/home.html", context)


def _newest_ended(runs: RunQuerySet) -> list[Run]:
    """The newest completed and stopped runs; of each state by itself, for which the index has their order."""
    ended = [run for state in ENDED for run in runs.filter(state=state).order_by("-finished_at")[:RUNS_SHOWN]]
    return sorted(ended, key=lambda run: run.finished_at or run.created_at, reverse=True)[:RUNS_SHOWN]


def _first_steps(user: User) -> list[dict[str, Any]]:
    """What a first run needs, and whether it is there."""
    first_steps = (
        ("Models", "Two or more, from the Hub or a folder.", "Add a model", LanguageModel, "registry:model_create"),
        ("Agent group", "The models that learn together.", "New group", AgentGroup, "registry:group_create"),
        ("Benchmark", "Questions with answers.", "Add a benchmark", Benchmark, "registry:benchmark_create"),
    )
    return [
        {"label": label, "text": text, "act": act, "name": name, "done": rows.objects.listed_for(user).exists()}
        for label, text, act, rows, name in first_steps
    ]


def _waiting_for_user(runs: RunQuerySet) -> Iterable[Run]:
    """Runs that failed lately and were neither tried again nor continued, paused runs, drafts; the newest of each."""
    since = timezone.now() - FAILURES_SHOWN_FOR
    failed = runs.filter(state=State.FAILED, finished_at__gte=since, retries=None)
    failed = failed.exclude(clones__start_step__gt=0)
    checkpoints = TelemetryEvent.objects.filter(run=OuterRef("pk"), type="checkpoint", run__files_removed_at=None)
    failed = failed.annotate(has_checkpoint=Exists(checkpoints))
    for some in (failed.order_by("-finished_at"), runs.filter(state=State.PAUSED), runs.filter(state=State.DRAFT)):
        yield from some[:RUNS_SHOWN]


def matters(runs: Iterable[Run]) -> list[Matter]:
    """The matters, one for each state and reason, in the order of their first runs."""
    by_cause: dict[tuple[State, str], list[Run]] = {}
    for run in runs:
        by_cause.setdefault((State(run.state), run.reason.partition("\n")[0]), []).append(run)
    return [Matter(state, reason, tuple(some)) for (state, reason), some in by_cause.items()]


@require_GET
def pulse(request: HttpRequest) -> JsonResponse:
    """What open pages poll: the count of running runs in their header, and what a demo prepares."""
    demo = preparation() if request.user.is_staff else None
    running = Run.objects.listed_for(request.user).filter(state__in=HELD).count()
    values = {"running": running, "demo": demo.activity if demo else "", "percent": demo.percent if demo else None}
    values["phase"] = demo.phase if demo else 0
    return JsonResponse(values)
