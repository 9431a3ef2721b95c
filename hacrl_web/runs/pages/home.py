"""Pages about all runs at once: home, the hosts with the queue, the search of every page, the page of components."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.demo_state import preparation
from hacrl_web.runs.launch.queue import places
from hacrl_web.runs.models import HELD, QUEUE_ORDER, Run, RunQuerySet, State, Sweep
from hacrl_web.runs.worker.host_report import add_devices, host_cards
from hacrl_web.web.page_query import PageQuery, Text, clean_text

ACTIVE = (State.STARTING, State.RUNNING, State.PAUSED, State.LOST)
FINISHED_SHOWN = 10
QUEUE_SHOWN = 500
MOST_OF_A_KIND = 6
KINDS: dict[str, Any] = {
    "run": Run,
    "sweep": Sweep,
    "model": LanguageModel,
    "agent group": AgentGroup,
    "benchmark": Benchmark,
}


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


@require_GET
def worker_list(request: HttpRequest) -> HttpResponse:
    """Hosts with the runs that they hold, and the queue in the order in which runs start."""
    visible: RunQuerySet = Run.objects.visible_to(request.user)
    all_places = places()
    own = [pk for pk in visible.in_queue().values_list("pk", flat=True) if pk in all_places]
    waiting = list(visible.filter(pk__in=own[:QUEUE_SHOWN]).select_related("project"))
    for run in waiting:
        run.place = all_places[run.pk]
    cards = host_cards(request.user)
    context = {
        "cards": cards,
        "queue": sorted(waiting, key=lambda run: run.place),
        "num_cut": len(own) - len(waiting),
        "num_others": len(all_places) - len(own),
        "is_idle": not any(card.runs for card in cards),
        "paused": visible.filter(state=State.PAUSED).select_related("project").order_by("-created_at")[:500],
    }
    return render(request, "runs/pages/worker_list.html", context)


class SearchQuery(PageQuery):
    """`q` is a part of a name."""

    q: Text = ""


@require_GET
def find_page(request: HttpRequest) -> JsonResponse:
    """The search of every page."""
    results = rows_named(request.user, SearchQuery.read(request.GET).q)
    return JsonResponse({"found": results}, headers={"Cache-Control": "no-store"})


def rows_named(user: Any, text: str) -> list[dict[str, str]]:
    """Kind, name and address of the newest rows of each kind with this text in their name."""
    results: list[dict[str, str]] = []
    if words := clean_text(text):
        for kind, model in KINDS.items():
            rows = model.objects.visible_to(user).filter(name__icontains=words)
            newest = rows.only("pk", "name").order_by("-created_at", "-pk")[:MOST_OF_A_KIND]
            results += [{"kind": kind, "name": row.name, "url": row.get_absolute_url()} for row in newest]
    return results


class ExampleForm(forms.Form):
    """For the page of components."""

    name = forms.CharField(
        label="Name", help_text="Shown in lists.", widget=forms.TextInput(attrs={"class": "input"}), max_length=5
    )
    number = forms.FloatField(label="Learning rate", widget=forms.NumberInput(attrs={"class": "input"}))


@require_GET
def components(request: HttpRequest) -> HttpResponse:
    """Every component of the pages on one page, for those who develop them."""
    if not request.user.is_staff:
        raise Http404
    context = {
        "states": State.values,
        "agent_names": ["Qwen3-1.7B-Base", "Llama3.2-1B-Instruct", *(f"agent {i}" for i in range(3, 8)), "n" * 80],
        "form": ExampleForm({"name": "ok", "number": "1,5"}),
        "checks": [
            {"label": "config.json is there", "status": "pass", "detail": "LlamaForCausalLM"},
            {"label": "A chat template", "status": "warn", "detail": "none: the bare prompt is used"},
            {"label": "Weights as *.safetensors", "status": "fail", "detail": "only pytorch_model.bin was found"},
            {"label": "Memory estimate", "status": "wait", "detail": ""},
        ],
    }
    return render(request, "components.html", context)
