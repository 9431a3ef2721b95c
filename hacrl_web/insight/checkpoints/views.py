"""The Checkpoints tab: list, download, promote, extend, ask."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from hacrl_web.insight.checkpoints import ask_agents, checkpoints, reuse, uploads
from hacrl_web.insight.checkpoints.model_card import FILE_NAME, SUMS_NAME, model_card, precision_of, sums_of
from hacrl_web.insight.checkpoints.zip_stream import zip_of_agent
from hacrl_web.runs.models import Run
from hacrl_web.runs.run.header import header, run_or_404
from hacrl_web.runs.storage.run_files import pieces_while_reading
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import PageQuery, Whole, whole_number
from hacrl_web.web.streaming import download_pieces


class CheckpointsQuery(PageQuery):
    """verify: the step whose checkpoint is read byte by byte.  ask: the step whose agents the form offers to ask."""

    verify: Whole | None = None
    ask: Whole | None = None


@require_GET
def run_checkpoints(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    return _page(request, run_or_404(request, run_id))


def _page(request: HttpRequest, run: Run, status: int = 200, **more: Any) -> HttpResponse:
    query = CheckpointsQuery.read(request.GET)
    listing = checkpoints.list_of_checkpoints(run, verify=query.verify)
    names = reuse.model_names(run)
    for one in listing.checkpoints:
        for agent in one.agents:
            agent.proposed = reuse.proposed_name(run, agent.name, one.step, names)
            agent.repository = uploads.proposed_repo(run, agent.name)
    sound = [one for one in listing.checkpoints if not one.damage]
    sample = run.benchmark.sample[:1] if run.benchmark else []
    form = {
        "question": "",
        "expected": "",
        "temperature": "0",
        "seed": "0",
        "max_new_tokens": ask_agents.default_tokens(run),
        "step": query.ask or next((one.step for one in sound if one.is_newest), None),
    }
    context = header(run) | {
        "tab": "checkpoints",
        "listing": listing,
        "recorded": [] if listing.is_here else _recorded(run),
        "sound": sound,
        "form": form,
        "uploads": uploads.uploads_of(run) if listing.is_here else [],
        "contents": uploads.CONTENTS,
        "most_tokens": ask_agents.most_tokens(run),
        "time_limit_s": ask_agents.TIMEOUT_S,
        "example": str(sample[0].get("question", ""))[:200] if sample else "",
    }
    return render(request, "insight/checkpoints/checkpoints.html", context | more, status=status)


def _recorded(run: Run) -> list[dict[str, Any]]:
    """The newest checkpoints by the trainer's events, for files that are on another host."""
    events = run.events.filter(type="checkpoint").order_by("-seq")[: checkpoints.MAX_LISTED]
    return [{"step": event.step, "size_bytes": event.payload.get("size_bytes")} for event in events]


@require_GET
def download_agent(
    request: HttpRequest, run_id: uuid.UUID, step: int, agent: int
) -> HttpResponse | StreamingHttpResponse:
    """One agent's model folder as a zip archive."""
    run = run_or_404(request, run_id)
    try:
        return archive_of(request, run, step, agent)
    except FieldErrors as error:
        return _page(request, run, error.status, refusal=error.errors)


def archive_of(request: HttpRequest, run: Run, step: int, place: int) -> StreamingHttpResponse:
    """An agent's folder with a model card. Error: FieldErrors."""
    manifest, name = checkpoints.checkpoint_and_agent(run, step, place)
    folder = checkpoints.agent_slug(name, run.algorithm, f"seed {run.seed}", f"step {step}")
    files, precision = manifest.files_of(name), precision_of(manifest.path / manifest.folders[name])
    texts = {} if FILE_NAME in files else {FILE_NAME: model_card(run, name, step, folder, precision=precision)}
    texts[SUMS_NAME] = sums_of({one: str(entry["sha256"]) for one, entry in files.items()}, texts)
    pieces = pieces_while_reading(run, zip_of_agent(manifest, name, folder, texts))
    return download_pieces(request, pieces, f"{folder}.zip", "application/zip")


def _step_and_place(request: HttpRequest) -> tuple[int, int]:
    """The step and the place of the agent that a form names. Error: Http404."""
    step, place = (whole_number(request.POST.get(key, "")) for key in ("step", "agent"))
    if step is None or place is None:
        raise Http404
    return step, place


@require_POST
def promote(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """`step`, `agent` (its place) and `name`: a new registered model. The form keeps a refused name."""
    run = run_or_404(request, run_id)
    step, place = _step_and_place(request)
    name = request.POST.get("name", "")
    try:
        manifest, agent = checkpoints.checkpoint_and_agent(run, step, place)
        model = reuse.promote_checkpoint(request.user, run, manifest, agent, name)
    except FieldErrors as error:
        of_name = [one.message for one in error.errors if one.field == "name"]
        others = [one for one in error.errors if one.field != "name"]
        typed = {"step": step, "place": place, "id": f"name-{step}-{place}", "name": name, "errors": of_name}
        return _page(request, run, error.status, refusal=others, typed=typed)
    messages.success(request, f"{agent} of step {step} is now a registered model.")
    return redirect(model)


@require_POST
def push(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """`step`, `agent` (its place), `repo`, `content` and `public`: an upload to the hub, in the background."""
    run = run_or_404(request, run_id)
    step, place = _step_and_place(request)
    repo, content = request.POST.get("repo", ""), request.POST.get("content", "merged")
    try:
        manifest, agent = checkpoints.checkpoint_and_agent(run, step, place)
        is_private = request.POST.get("public") != "on"
        uploads.start_upload(request.user, run, manifest, agent, repo=repo, content=content, is_private=is_private)
    except FieldErrors as error:
        return _page(request, run, error.status, refusal=error.errors)
    return redirect(f"{reverse('insight:run_checkpoints', args=[run.pk])}#uploads")


@require_GET
def upload_list(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The uploads of a run, for the page's own script while one is under way."""
    run = run_or_404(request, run_id)
    return render(request, "insight/checkpoints/_uploads.html", {"run": run, "uploads": uploads.uploads_of(run)})


@require_POST
def extend(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Queue a new run that continues from the checkpoint at `step` for `steps` more steps."""
    run = run_or_404(request, run_id)
    step, steps = (whole_number(request.POST.get(key, "").strip()) for key in ("step", "steps"))
    if step is None:
        raise Http404
    try:
        manifest = checkpoints.find_checkpoint(run, step)
        return redirect(reuse.launch_extension(request.user, run, manifest, steps or 0))
    except FieldErrors as error:
        return _page(request, run, error.status, refusal=error.errors)


@require_POST
def ask(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Every agent of the checkpoint answers the question; a part of the page for htmx, else the page."""
    run = run_or_404(request, run_id)
    keys = ("question", "expected", "temperature", "seed", "max_new_tokens")
    form: dict[str, Any] = {key: request.POST.get(key, "") for key in keys}
    form["step"] = step = whole_number(request.POST.get("step", ""))
    context: dict[str, Any] = {"form": form}
    status = 200
    try:
        question = ask_agents.checked_question(form, run)
        if step is None:
            raise FieldErrors.single("missing", "Choose a checkpoint.", "step")
        manifest = checkpoints.find_checkpoint(run, step)
        places = {name: place for place, name in enumerate(run.agent_names)}
        answers = ask_agents.ask_checkpoint(request.user, run, manifest, question)
        context["answers"] = [answer | {"position": places.get(answer["agent"], 0)} for answer in answers]
        context["prompted"] = question | {"step": step}
    except FieldErrors as error:
        context["ask_errors"], status = error.errors, error.status
    if getattr(request, "htmx", False):
        return render(request, "insight/checkpoints/_answers.html", context | {"run": run}, status=status)
    return _page(request, run, status, **context)
