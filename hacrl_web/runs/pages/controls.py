"""The buttons of the run header, the queue and the hosts: stop, pause, resume, retry, reorder, drain.

They ask; models, queue and launch decide.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from hacrl_web.runs.launch import queue
from hacrl_web.runs.launch.drafts import queue_draft
from hacrl_web.runs.launch.launch import retry
from hacrl_web.runs.models import HELD, Desire, Drain, Host, Run, State
from hacrl_web.runs.pubsub import publish_update
from hacrl_web.runs.worker import hosts
from hacrl_web.web.errors import FieldErrors

MOVES = {"first": -(10**6), "up": -1, "down": 1, "last": 10**6}
DRAIN_WORDS = {
    Drain.NO: "{} takes runs again.",
    Drain.FINISH: "{} takes no new run; those under way train to their end.",
    Drain.NOW: "{} takes no run; those under way are saved after their step and go back to the queue.",
}


def _run(request: HttpRequest, run_id: uuid.UUID) -> Run:
    return get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)


def _back(request: HttpRequest, run: Run) -> HttpResponse:
    """Where the button was: the queue, or the run's page."""
    return redirect("runs:worker_list") if request.POST.get("from") == "queue" else redirect(run)


def who(verb: str, request: HttpRequest, why: Any = "") -> str:
    """The reason of a change that a person asked for: "paused by ada: lunch"."""
    text = str(why or "").replace("\x00", "").strip()[:200]
    return f"{verb} by {request.user.get_username()}" + (f": {text}" if text else "")


@require_POST
def run_stop(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Ask for the run's end; stopping twice, or a run that has ended, changes nothing and says so."""
    run = _run(request, run_id)
    if run.is_terminal:
        messages.info(request, f"The run had already ended: {run.state}.")
    else:
        run.request_stop(who("stopped", request))
        publish_update(run.pk)
        messages.info(request, _stopping(run))
    return redirect(run)


def _stopping(run: Run) -> str:
    if run.is_terminal:
        return "Stopped."
    if run.state in HELD:
        return "Stopping: the trainer ends after its current phase."
    return "Stopping: nobody trains it; it ends when all that its lost trainer has left is stored."


@require_POST
def run_pause(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Hold a queued run out of the queue, or end a running one after its step with a checkpoint."""
    run = _run(request, run_id)
    if run.can_pause:
        run.request_pause(who("paused", request, request.POST.get("why")))
        publish_update(run.pk)
    messages.info(request, _pausing(run))
    return _back(request, run)


def _pausing(run: Run) -> str:
    if run.is_terminal:
        return f"The run has ended: {run.state}."
    if run.state == State.PAUSED:
        return "Paused."
    if run.desired_state != Desire.PAUSE:
        return "The run is being stopped." if run.desired_state == Desire.STOP else f"The run is a {run.state}."
    if run.state in HELD:
        return "Pausing: the trainer ends after the step under way, with a checkpoint."
    return "Pausing: nobody trains it; it waits to be resumed."


@require_POST
def run_resume(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Back to the queue."""
    run = _run(request, run_id)
    if run.can_resume:
        run.request_resume(who("resumed", request))
        publish_update(run.pk)
        # A pause that was not reached is taken back: somebody may train it still.
        goes_on = "it goes on" if run.state in HELD else "it goes on from its newest checkpoint when a worker is free"
        messages.info(request, f"Resumed: {goes_on}.")
    else:
        messages.info(request, f"The run is not paused: {run.state}.")
    return _back(request, run)


@require_POST
def run_retry(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """A new run with the same settings."""
    run = _run(request, run_id)
    try:
        return redirect(retry(request.user, run))
    except FieldErrors as refused:
        messages.error(request, " ".join(error.message for error in refused.errors))
        return redirect(run)


@require_POST
def run_queue_draft(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """A draft goes into the queue, its cautions confirmed by the ticked boxes (`confirm`); or why not."""
    run = _run(request, run_id)
    try:
        queue_draft(request.user, run, request.POST.getlist("confirm"))
        messages.success(request, f"{run.name} is in the queue.")
    except FieldErrors as refused:
        messages.error(request, "It stays as it was. " + " ".join(error.message for error in refused.errors))
    return redirect(run)


@require_POST
def run_queue(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Another place (`place`, or `move`: first, up, down, last) or another `priority`. Odd values change nothing."""
    run = _run(request, run_id)
    place, step = request.POST.get("place", ""), MOVES.get(request.POST.get("move", ""))
    priority = request.POST.get("priority", "")
    try:
        with transaction.atomic():  # a refused place leaves the priority as it was
            if priority.removeprefix("-").isdecimal() and len(priority) < 6:
                queue.set_priority(request.user, run, int(priority))
            if place.isdecimal() and len(place) < 8:
                queue.move_run(request.user, run, int(place))
            elif step is not None:
                order = list(queue.movable(request.user, run).values_list("pk", flat=True))
                queue.move_run(request.user, run, (order.index(run.pk) if run.pk in order else 0) + 1 + step)
    except FieldErrors as refused:
        messages.error(request, " ".join(error.message for error in refused.errors))
    return _back(request, run)


@require_POST
def host_drain(request: HttpRequest) -> HttpResponse:
    """Whether a host takes runs; for staff."""
    host = Host.objects.filter(name=request.POST.get("name", "").replace("\x00", "")).first()
    drain = request.POST.get("drain", "")
    if not request.user.is_staff:
        messages.error(request, "Only staff may drain a host.")
    elif host is None or drain not in Drain.values:
        messages.error(request, "There is no such host.")
    else:
        hosts.set_drain(host, drain, who("drained", request, request.POST.get("why")))
        messages.info(request, DRAIN_WORDS[Drain(drain)].format(host.name))
    return redirect("runs:worker_list")
