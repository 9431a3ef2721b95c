"""The Checkpoints tab: list, download, promote, ask. Views parse, call and render."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from hacrl_web.insight.checkpoints import ask_agents, checkpoints
from hacrl_web.insight.checkpoints.more_steps import launch_extension as extend_run
from hacrl_web.insight.checkpoints.promotion import promote_checkpoint as promote_agent
from hacrl_web.insight.checkpoints.promotion import proposed_name, taken_names
from hacrl_web.insight.checkpoints.zip_stream import zip_of_agent
from hacrl_web.runs.models import Run
from hacrl_web.runs.pages.runs import header, run_or_404
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.streaming import download_pieces
from workers.contract.checkpoint_manifest import DamagedCheckpoint, Manifest


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


@require_GET
def run_checkpoints(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """`verify` is the step whose every byte is read now; `ask` the step whose agents are asked."""
    return _page(request, run_or_404(request, run_id))


def _page(request: HttpRequest, run: Run, status: int = 200, **more: Any) -> HttpResponse:
    listing = checkpoints.list_of_checkpoints(run, verify=_whole(request.GET.get("verify", "")))
    names = taken_names(run)
    for one in listing.shown:
        for agent in one.agents:
            agent.proposed = proposed_name(run, agent.name, one.step, names)
    sound = [one for one in listing.shown if not one.damage]
    step = _whole(request.GET.get("ask", "")) or next((one.step for one in sound if one.is_newest), None)
    sample = run.benchmark.sample[:1] if run.benchmark else []
    form = {
        "question": "",
        "expected": "",
        "temperature": "0",
        "seed": "0",
        "max_new_tokens": ask_agents.default_tokens(run),
        "step": step,
    }
    context = header(run) | {
        "tab": "checkpoints",
        "listing": listing,
        "told": [] if listing.is_here else _told(run),
        "sound": sound,
        "form": form,
        "most_tokens": ask_agents.most_tokens(run),
        "time_limit_s": ask_agents.TIMEOUT_S,
        "example": str(sample[0].get("question", ""))[:200] if sample else "",
    }
    return render(request, "insight/checkpoints/checkpoints.html", context | more, status=status)


def _told(run: Run) -> list[dict[str, Any]]:
    """What the trainer said of the newest checkpoints, where the files are elsewhere."""
    events = run.events.filter(type="checkpoint").order_by("-seq")[: checkpoints.SHOWN]
    return [{"step": event.step, "size_bytes": event.payload.get("size_bytes")} for event in events]


def found_checkpoint(run: Run, step: int, agent: int) -> tuple[Manifest, str]:
    """Errors: FieldErrors with what to tell, 404 where there is no such checkpoint here."""
    try:
        manifest = checkpoints.find_checkpoint(run, step)
        return manifest, checkpoints.agent_at(manifest, agent)
    except checkpoints.NoSuchCheckpoint as error:
        raise FieldErrors([FieldError("not_found", str(error), "step")], 404) from None
    except DamagedCheckpoint as error:
        raise FieldErrors([FieldError("damaged", f"{error}.", "step")], 409) from None


@require_GET
def download_agent(
    request: HttpRequest, run_id: uuid.UUID, step: int, agent: int
) -> HttpResponse | StreamingHttpResponse:
    """One agent's model folder as a zip archive."""
    run = run_or_404(request, run_id)
    try:
        return archive_of(request, run, step, agent)
    except FieldErrors as refused:
        return _page(request, run, refused.status, refusal=refused.errors)


def archive_of(request: HttpRequest, run: Run, step: int, agent: int) -> StreamingHttpResponse:
    """Error: FieldErrors."""
    manifest, name = found_checkpoint(run, step, agent)
    folder = checkpoints.agent_slug(name, run.algorithm, f"seed {run.seed}", f"step {step}")
    return download_pieces(request, zip_of_agent(manifest, name, folder), f"{folder}.zip", "application/zip")


@require_POST
def promote(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """`step`, `agent` (its place) and `name`: a new registered model. A refused name stands in its form."""
    run = run_or_404(request, run_id)
    step, place = _whole(request.POST.get("step", "")), _whole(request.POST.get("agent", ""))
    if step is None or place is None:
        raise Http404
    try:
        manifest, agent = found_checkpoint(run, step, place)
        model = promote_agent(request.user, run, manifest, agent, request.POST.get("name", ""))
    except FieldErrors as refused:
        typed = {"step": step, "place": place, "id": f"name-{step}-{place}", "name": request.POST.get("name", "")}
        typed["errors"] = [error.message for error in refused.errors if error.field == "name"]
        others = [error for error in refused.errors if error.field != "name"]
        return _page(request, run, refused.status, refusal=others, typed=typed)
    messages.success(request, f"{agent} of step {step} is now a registered model.")
    return redirect(model)


@require_POST
def extend(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """`step` of a checkpoint, and how many `steps` more: a new run."""
    run = run_or_404(request, run_id)
    step, steps = _whole(request.POST.get("step", "")), _whole(request.POST.get("steps", "").strip())
    if step is None:
        raise Http404
    try:
        manifest, _ = found_checkpoint(run, step, 0)
        return redirect(extend_run(request.user, run, manifest, steps or 0))
    except FieldErrors as refused:
        return _page(request, run, refused.status, refusal=refused.errors)


@require_POST
def ask(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Every agent of the checkpoint answers the question; a part of the page for htmx, else the page."""
    run = run_or_404(request, run_id)
    keys = ("question", "expected", "temperature", "seed", "max_new_tokens")
    form: dict[str, Any] = {key: request.POST.get(key, "") for key in keys}
    form["step"] = step = _whole(request.POST.get("step", ""))
    context: dict[str, Any] = {"form": form}
    status = 200
    try:
        question = ask_agents.checked_question(form, run)
        if step is None:
            raise FieldErrors([FieldError("missing", "Choose a checkpoint.", "step")])
        manifest, _ = found_checkpoint(run, step, 0)
        places = {name: place for place, name in enumerate(run.agent_names)}
        answers = ask_agents.ask_checkpoint(request.user, run, manifest, question)
        context["answers"] = [answer | {"position": places.get(answer["agent"], 0)} for answer in answers]
        context["asked"] = question | {"step": step}
    except FieldErrors as refused:
        context["ask_errors"], status = refused.errors, refused.status
    if getattr(request, "htmx", False):
        return render(request, "insight/checkpoints/_answers.html", context | {"run": run}, status=status)
    return _page(request, run, status, **context)
