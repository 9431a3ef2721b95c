"""The buttons of the run header and the queue: stop, pause, resume, retry, reorder."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from hacrl_web.runs.models import HELD, Desire, Run, State
from hacrl_web.runs.models.requests import change_reason, visible_run
from hacrl_web.runs.worker import queue
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import whole_number

MOVES = {"first": -(10**6), "up": -1, "down": 1, "last": 10**6}


def _back(request: HttpRequest, run: Run) -> HttpResponse:
    """Redirect to the page of the button: the queue, Home, or the run."""
    pages = {"queue": "runs:worker_list", "home": "home"}
    return redirect(pages.get(request.POST.get("from", ""), run))


@require_POST
def run_stop(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Stop a run. A second stop, or one after the end, changes nothing."""
    run = visible_run(request, run_id)
    if run.is_terminal:
        messages.info(request, f"The run had already ended: {run.state}.")
        return redirect(run)
    run.request_stop(change_reason("stopped", request))
    if run.is_terminal:
        messages.info(request, "Stopped.")
    elif run.state in HELD:
        messages.info(request, "Stopping: the trainer ends after its current phase.")
    else:
        messages.info(request, "Stopping: no trainer runs; it ends when the events of its lost trainer are stored.")
    return redirect(run)


@require_POST
def run_pause(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Take a queued run out of the queue, or end a running one after its step with a checkpoint."""
    run = visible_run(request, run_id)
    if run.can_pause:
        run.request_pause(change_reason("paused", request, request.POST.get("why")))
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
        return "Pausing: the trainer ends after the current step, with a checkpoint."
    return "Pausing: no trainer is running; resume it to continue."


@require_POST
def run_resume(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Put a paused run back into the queue."""
    run = visible_run(request, run_id)
    if run.can_resume:
        run.request_resume(change_reason("resumed", request))
        # A run that has not paused yet still trains.
        after = "" if run.state in HELD else " from its newest checkpoint when a worker is free"
        messages.info(request, f"Resumed: it continues{after}.")
    else:
        messages.info(request, f"The run is not paused: {run.state}.")
    return _back(request, run)


@require_POST
def run_queue(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Give a run another `place` (or `move`: first, up, down, last) or `priority`. Odd values change nothing."""
    run = visible_run(request, run_id)
    place = whole_number(request.POST.get("place", ""))
    step = MOVES.get(request.POST.get("move", ""))
    if place is None and step is not None:
        order = list(queue.movable(request.user, run).values_list("pk", flat=True))
        place = (order.index(run.pk) if run.pk in order else 0) + 1 + step
    text = request.POST.get("priority", "")
    priority = whole_number(text.removeprefix("-"))
    if priority is not None and text.startswith("-"):
        priority = -priority
    try:
        queue.reorder(request.user, run, place=place, priority=priority)
    except FieldErrors as refused:
        messages.error(request, refused.text)
    return _back(request, run)
