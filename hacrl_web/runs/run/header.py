"""The header that every tab of a run shows, and the run with the rows that it needs."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from hacrl_web.runs.models import Run, State
from hacrl_web.runs.models.quotas import waiting_reason
from hacrl_web.runs.run.cautions import cautions_of_run
from hacrl_web.runs.storage.stored_spec import stored_spec
from hacrl_web.runs.telemetry.resumption import under_way
from hacrl_web.runs.worker.queue import place_in_queue
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.algorithms.registry import algorithms

SPEEDS = (1, 5, 20, 100, 500, 2_500)  # of a replay, as multiples of the run's own
MAX_SPEED = 100_000
REPLAY_S = 60.0


def run_or_404(request: HttpRequest, run_id: uuid.UUID) -> Run:
    """The run with what its header shows. Error: Http404."""
    runs = Run.objects.visible_to(request.user).select_related("benchmark", "group", "sweep", "owner")
    return get_object_or_404(runs, pk=run_id)


def can_ablate(run: Run) -> bool:
    """Whether its algorithm has parts that a sweep can leave out."""
    cls = algorithms().get(run.algorithm)
    return cls is not None and bool(cls.ablations)


def header(run: Run) -> dict[str, Any]:
    """What every tab of a run shows above it."""
    checkpoints = run.events.filter(type="checkpoint").order_by("-seq")
    last_checkpoint = None if run.files_removed_at else checkpoints.first()
    agents = [{"name": name, "position": place} for place, name in enumerate(run.agent_names)]
    context = {"run": run, "agents": agents, "last_checkpoint": last_checkpoint, "place": place_in_queue(run)}
    context["waiting_reason"] = waiting_reason(run)
    context["can_ablate"] = can_ablate(run)
    context["network_functions"] = run.network_functions
    if run.state == State.DRAFT:
        context["cautions"] = _open_cautions(run)
    return context | {"resumption": under_way(run)}


def _open_cautions(draft: Run) -> list[FieldError]:
    """The cautions to confirm when it is queued; none if this version cannot read the settings."""
    try:
        cautions = cautions_of_run(draft, stored_spec(draft))
    except FieldErrors:
        return []
    return [FieldError(caution.code, caution.message, caution.field) for caution in cautions]


def replay(run: Run, speed: int, at: int | None) -> dict[str, Any]:
    """What the page of a run needs to offer a replay, or to be one. Nothing before the run has ended.

    speed: as a multiple of the run's own, 0 without a replay; at: the step whose end it begins at.
    """
    if not run.is_terminal or not run.last_seq:
        return {}
    elapsed_s = run.progress.get("elapsed_s") or 0.0
    context = {"replay_speed": next((one for one in SPEEDS if elapsed_s / one <= REPLAY_S), SPEEDS[-1])}
    if not speed:
        return context
    return context | {"replay": {"speed": speed, "speeds": sorted({*SPEEDS, speed}), "at": -1 if at is None else at}}
