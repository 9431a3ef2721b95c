"""Pages that show runs: home, list, run, workers. Views parse, call and render; nothing is decided here."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.demo_state import preparation
from hacrl_web.runs.labels import tags_of
from hacrl_web.runs.launch.drafts import open_cautions
from hacrl_web.runs.launch.queue import place_in_queue
from hacrl_web.runs.launch.queue import places as queue_places
from hacrl_web.runs.models import HELD, QUEUE_ORDER, Run, RunQuerySet, State
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.runs.telemetry.metric_series import metric_rows
from hacrl_web.runs.worker.host_report import add_devices, host_cards
from hacrl_web.runs.worker.resumption import under_way
from hacrl_web.web.streaming import Echo, csv_cell, download
from workers.contract.spec.run import RunSpec

PAGE_SIZE = 50
QUEUE_SHOWN = 500
TABS = ("overview", "logs")
OWN_PAGES = ("config", "events")  # once tabs of the page of a run
ACTIVE = (State.STARTING, State.RUNNING, State.PAUSED, State.LOST)
FAILED_SHOWN = 10
TAGS_SHOWN = 40
UNDER_WAY = "held"  # in the list's `state`: what the number in the header counts


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Running now, queue, failed today, and what finished last; with nothing yet, the way to the first run."""
    runs = Run.objects.listed_for(request.user).select_related("benchmark", "group")
    shelf = runs.filter(archived_at=None)
    has_model = LanguageModel.objects.listed_for(request.user).exists()
    has_group = AgentGroup.objects.listed_for(request.user).exists()
    has_benchmark = Benchmark.objects.listed_for(request.user).exists()
    since = timezone.now() - timedelta(hours=24)
    running = list(runs.filter(state__in=ACTIVE).order_by("-started_at"))
    add_devices(running)
    context = {
        "running": running,
        "queue": runs.filter(state=State.QUEUED).order_by(*QUEUE_ORDER)[:20],
        "failed": shelf.filter(state=State.FAILED, finished_at__gte=since).order_by("-finished_at")[:FAILED_SHOWN],
        "finished": shelf.filter(state=State.COMPLETED).order_by("-finished_at")[:FAILED_SHOWN],
        "has_runs": runs.exists(),
        "demo": preparation() if request.user.is_staff else None,
        "start": [
            {"label": "Register the models to train", "done": has_model, "name": "registry:model_create"},
            {"label": "Put them into an agent group", "done": has_group, "name": "registry:group_create"},
            {
                "label": "Add a benchmark: questions with answers",
                "done": has_benchmark,
                "name": "registry:benchmark_create",
            },
            {"label": "Start a run", "done": False, "name": "runs:run_create"},
        ],
    }
    return render(request, "runs/pages/home.html", context)


@require_GET
def pulse(request: HttpRequest) -> JsonResponse:
    """What a page that stays open asks for: the running count of its header, and what a demo prepares."""
    demo = preparation() if request.user.is_staff else None
    running = Run.objects.listed_for(request.user).filter(state__in=HELD).count()
    return JsonResponse({"running": running, "demo": demo.doing if demo else ""}, headers={"Cache-Control": "no-store"})


@require_GET
def run_list(request: HttpRequest) -> HttpResponse:
    """Runs of the project, newest first. `state`, `tag` and `archived` filter, `q` looks in names; odd values: none."""
    every = Run.objects.listed_for(request.user)
    filters = _asked(request)
    shelf = every.filter(archived_at__isnull="archived" not in filters)
    tags = tags_of(shelf)
    if filters.get("tag") not in tags:
        filters.pop("tag", None)
    matches = _narrowed(shelf, filters)
    counts = dict(matches.order_by().values_list("state").annotate(Count("pk")))
    runs = matches.select_related("benchmark", "group", "sweep")
    if "state" in filters:
        runs = runs.filter(state__in=HELD) if filters["state"] == UNDER_WAY else runs.filter(state=filters["state"])
    context = {
        "page": Paginator(runs, PAGE_SIZE).get_page(request.GET.get("page")),
        "query": urlencode(filters),
        "asked": filters,
        "states": [
            (state, counts.get(state, 0), _with(filters, state=state))
            for state in State.values
            if counts.get(state) or state == filters.get("state")
        ],
        "all_query": _with(filters, state=""),
        "held_query": _with(filters, state=UNDER_WAY),
        "tags": [(tag, _with(filters, tag="" if tag == filters.get("tag") else tag)) for tag in tags[:TAGS_SHOWN]],
        "search": filters.get("q", ""),
        "has_runs": every.exists(),
        "total": sum(counts.values()),
        "num_archived": _narrowed(every.filter(archived_at__isnull=False), filters).count(),
        "archived_query": _with(filters, archived="" if "archived" in filters else "1", state=""),
        "num_held": sum(counts.get(state, 0) for state in HELD),
    }
    return render(request, "runs/pages/run_list.html", context)


def _narrowed(runs: RunQuerySet, filters: dict[str, str]) -> RunQuerySet:
    """Those of the tag and the name that are asked for: what a link to a state keeps, and its number counts."""
    if "tag" in filters:
        runs = runs.tagged(filters["tag"])
    if search := filters.get("q"):
        runs = runs.filter(Q(name__icontains=search) | Q(sweep__name__icontains=search))
    return runs


def _asked(request: HttpRequest) -> dict[str, str]:
    """The filters of the list that mean something."""
    names = ("state", "tag", "archived", "q")
    texts = {name: request.GET.get(name, "").replace("\x00", "")[:200].strip() for name in names}
    if texts["state"] not in (UNDER_WAY, *State.values):
        texts["state"] = ""
    if texts["archived"] != "1":
        texts["archived"] = ""
    return {name: value for name, value in texts.items() if value}


def _with(filters: dict[str, str], **changed: str) -> str:
    """The query of a link that changes some filters and keeps the others."""
    return urlencode({name: value for name, value in (filters | changed).items() if value})


def run_or_404(request: HttpRequest, run_id: uuid.UUID) -> Run:
    runs = Run.objects.visible_to(request.user).select_related("benchmark", "group", "sweep", "owner")
    return get_object_or_404(runs, pk=run_id)


def header(run: Run) -> dict[str, Any]:
    """What every tab of a run shows above it."""
    last_checkpoint = run.events.filter(type="checkpoint").order_by("-seq").first()
    agents = [{"name": name, "position": place} for place, name in enumerate(run.agent_names)]
    context = {"run": run, "agents": agents, "last_checkpoint": last_checkpoint, "place": place_in_queue(run)}
    if run.state == State.DRAFT:
        context["cautions"] = open_cautions(run)
    return context | {"resumption": under_way(run)}


@require_GET
def run_detail(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """One run; charts and logs are filled by the page's socket, from the first event on."""
    run = run_or_404(request, run_id)
    tab = request.GET.get("tab", "overview")
    if tab in OWN_PAGES:
        return redirect(f"insight:run_{tab}", run_id)
    if run.is_evaluation_only and tab != "logs":
        return redirect("insight:run_evaluations", run_id)
    spec = stored_spec(run)
    context = header(run) | {
        "tab": tab if tab in TABS else "overview",
        "page_data": {
            "agents": run.agent_names,
            "unmeasured": _unmeasured(spec),
            "further": sorted(run.further_benchmarks),  # their evaluations are on no chart
            "shares": spec.algorithm.shares_rollouts and len(spec.agents) > 1,
        },
    }
    return render(request, "runs/pages/run_detail.html", context)


def _unmeasured(spec: RunSpec) -> list[str]:
    """Metrics that this run does not have, or has no use for: no chart of them."""
    rule, interval = spec.algorithm, spec.telemetry.alignment_interval
    measured = {
        "kl": rule.beta > 0,
        "omega": rule.uses_omega,
        "gradient_alignment": 0 < interval <= spec.training.steps,
        "engine_logp_difference": spec.rollout.engine != "transformers",
    }
    return [name for name, is_there in measured.items() if not is_there]


@require_GET
def metrics_csv(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """Every number that the charts can draw, one per line."""
    run = run_or_404(request, run_id)

    def lines() -> Iterator[str]:
        writer = csv.writer(Echo())
        yield writer.writerow(["step", "agent", "source", "metric", "value"])
        for row in metric_rows(run):
            yield writer.writerow([csv_cell(cell) for cell in row])

    return download(request, lines(), f"metrics-{run.pk}.csv", "text/csv")


@require_GET
def worker_list(request: HttpRequest) -> HttpResponse:
    """Hosts with the runs that they hold, and the queue in the order in which runs start."""
    visible: RunQuerySet = Run.objects.visible_to(request.user)
    places = queue_places()
    own = [pk for pk in visible.in_queue().values_list("pk", flat=True) if pk in places]
    waiting = list(visible.filter(pk__in=own[:QUEUE_SHOWN]).select_related("project"))
    for run in waiting:
        run.place = places[run.pk]
    cards = host_cards(request.user)
    context = {
        "cards": cards,
        "queue": sorted(waiting, key=lambda run: run.place),
        "num_cut": len(own) - len(waiting),
        "num_others": len(places) - len(own),
        "is_idle": not any(card.runs for card in cards),
        "paused": visible.filter(state=State.PAUSED).select_related("project").order_by("-created_at")[:500],
    }
    return render(request, "runs/pages/worker_list.html", context)


class _Example(forms.Form):
    name = forms.CharField(
        label="Name", help_text="Shown in lists.", widget=forms.TextInput(attrs={"class": "input"}), max_length=5
    )
    number = forms.FloatField(label="Learning rate", widget=forms.NumberInput(attrs={"class": "input"}))


@require_GET
def components(request: HttpRequest) -> HttpResponse:
    """Every component of the pages on one page, for whoever works on them."""
    if not request.user.is_staff:
        raise Http404
    context = {
        "states": State.values,
        "agent_names": ["Qwen3-1.7B-Base", "Llama3.2-1B-Instruct", *(f"agent {i}" for i in range(3, 8)), "n" * 80],
        "form": _Example({"name": "ok", "number": "1,5"}),
        "checks": [
            {"label": "config.json is there", "status": "pass", "detail": "LlamaForCausalLM"},
            {"label": "A chat template", "status": "warn", "detail": "none: the bare prompt is used"},
            {"label": "Weights as *.safetensors", "status": "fail", "detail": "only pytorch_model.bin was found"},
            {"label": "Memory estimate", "status": "wait", "detail": ""},
        ],
    }
    return render(request, "components.html", context)
