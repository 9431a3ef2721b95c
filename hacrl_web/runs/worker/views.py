"""The Workers page: hosts, the queue, and the buttons that drain and forget a host."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from hacrl_web.runs.models import Drain, Run, RunQuerySet, State
from hacrl_web.runs.models.requests import change_reason
from hacrl_web.runs.worker import hosts
from hacrl_web.runs.worker.host_report import host_cards
from hacrl_web.runs.worker.queue import places
from hacrl_web.web.errors import FieldErrors

QUEUE_SHOWN = 500
DRAIN_WORDS = {
    Drain.NO: "{} takes runs again.",
    Drain.FINISH: "{} takes no new runs; running ones train to their end.",
    Drain.NOW: "{} takes no runs; running ones are saved after their step and go back to the queue.",
}


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
    return render(request, "runs/worker/worker_list.html", context)


@require_POST
def host_drain(request: HttpRequest) -> HttpResponse:
    """Set whether a host takes runs; for staff."""
    name, drain = request.POST.get("name", ""), request.POST.get("drain", "")
    reason = change_reason("drained", request, request.POST.get("why"))
    try:
        host = hosts.change_drain(request.user, name, drain, reason)
        messages.info(request, DRAIN_WORDS[Drain(drain)].format(host.name))
    except FieldErrors as refused:
        messages.error(request, refused.text)
    return redirect("runs:worker_list")


@require_POST
def host_forget(request: HttpRequest) -> HttpResponse:
    """Remove a silent host; for staff."""
    name = request.POST.get("name", "")
    try:
        hosts.forget_host(request.user, name)
        messages.info(request, f"{name} is forgotten.")
    except FieldErrors as refused:
        messages.error(request, refused.text)
    return redirect("runs:worker_list")
