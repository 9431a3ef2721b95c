"""Pages of sweeps: their list, one sweep with its matrix of variants and seeds, and the buttons for all its runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.db.models import Exists, OuterRef
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from hacrl_web.accounts.models import User
from hacrl_web.registry.agent_groups.agent_changes import text_of_changes
from hacrl_web.runs.launch.controls import split_list
from hacrl_web.runs.launch.launch import queue_draft
from hacrl_web.runs.launch.plan import plan_of
from hacrl_web.runs.models import HELD, TERMINAL, Run, SearchState, State, Sweep, TrialState
from hacrl_web.runs.models.requests import change_reason, visible_sweep
from hacrl_web.runs.run.results import with_results
from hacrl_web.runs.sweeps import sweeps
from hacrl_web.runs.sweeps.search_view import SearchView, search_view
from hacrl_web.runs.sweeps.state import newest_checkpoints, state_of
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import page_of
from workers.contract.demo_recipe import demo_of
from workers.contract.spec.algorithm import BASELINE
from workers.contract.verifier_kinds import score_word

PAGE_SIZE = 50
# The service of each button, its verb, and the message about the changed runs.
ACTS: dict[str, tuple[Callable[[Sweep, str], list[Run]], str, str]] = {
    "stop": (sweeps.stop_all, "stopped", "Stopping {}: a trainer ends after its current phase."),
    "pause": (sweeps.pause_all, "paused", "Pausing {}: a trainer ends after its step, with a checkpoint."),
    "resume": (sweeps.resume_all, "resumed", "Resumed {}."),
}


@require_GET
def sweep_list(request: HttpRequest) -> HttpResponse:
    """All sweeps of the project, newest first, with how many runs of each are in which state."""
    page = page_of(request, Sweep.objects.listed_for(request.user), PAGE_SIZE)
    rows = _rows(list(page.object_list))
    return render(request, "runs/sweeps/sweep_list.html", {"page": page, "rows": rows, "total": page.paginator.count})


def _rows(sweeps: list[Sweep]) -> list[dict[str, Any]]:
    """The lines of the list, by one query for all of them. Runs that were retried do not count."""
    retries = Run.objects.filter(retry_of=OuterRef("pk"), sweep=OuterRef("sweep"))
    runs = Run.objects.filter(~Exists(retries), sweep__in=sweeps).order_by()
    by_sweep: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for run in runs.values("sweep", "state", "algorithm", "seed", "group__name", "benchmark__name"):
        by_sweep[run["sweep"]].append(run)
    return [_row(sweep, by_sweep[sweep.pk]) for sweep in sweeps]


def _row(sweep: Sweep, runs: list[dict[str, Any]]) -> dict[str, Any]:
    counts = Counter(run["state"] for run in runs)

    def values(column: str) -> list[Any]:
        return sorted({run[column] for run in runs if run[column] is not None})

    return {
        "sweep": sweep,
        "num_runs": len(runs),
        "num_ended": sum(counts[state] for state in TERMINAL),
        "counts": [(state, counts[state]) for state in State.values if counts[state]],
        "algorithms": values("algorithm"),
        "seeds": values("seed"),
        "groups": values("group__name"),
        "benchmarks": values("benchmark__name"),
    }


@require_GET
def sweep_detail(request: HttpRequest, sweep_id: int) -> HttpResponse:
    """The runs of a sweep, live; their results are added by the leaderboard's template tag. Of a draft, its plan."""
    sweep = visible_sweep(request, sweep_id)
    context = _draft_context(request.user, sweep) if sweep.is_draft else sweep_context(sweep)
    return render(request, "runs/sweeps/sweep_detail.html", context)


def _draft_context(user: User, sweep: Sweep) -> dict[str, Any]:
    try:
        plan = plan_of(user, {**sweep.request, "draft": True}, Sweep)
    except FieldErrors as refused:
        return {"sweep": sweep, "draft_problems": [error.message for error in refused.errors]}
    group, benchmark = plan.rows.pair
    planned = {
        "num_runs": plan.search.trials if plan.search else len(plan.runs),
        "search": plan.search,
        "variants": [] if plan.search else list(dict.fromkeys(run.label for run in plan.runs)),
        "group": group,
        "benchmark": benchmark,
        "agent_changes": _agent_changes(sweep),
    }
    return {"sweep": sweep, "planned": planned, "draft_cautions": plan.cautions}


@require_POST
def sweep_queue_draft(request: HttpRequest, sweep_id: int) -> HttpResponse:
    """Queue a draft. `confirm`: the codes of the ticked cautions."""
    sweep = visible_sweep(request, sweep_id)
    try:
        queue_draft(request.user, sweep, request.POST.getlist("confirm"))
        sweep.refresh_from_db()
        message = "The search begins in a moment." if sweep.search_state else f"{sweep.runs.count()} runs queued."
        messages.success(request, message, extra_tags=State.QUEUED)
    except FieldErrors as refused:
        messages.error(request, "Nothing was changed. " + refused.text)
    return redirect(sweep)


def _refused(request: HttpRequest, sweep: Sweep, field: str, refused: FieldErrors) -> HttpResponse:
    """The page with the refused form open, its value kept, and the errors."""
    typed = {"field": field, "value": request.POST.get(field, ""), "errors": [one.message for one in refused.errors]}
    context = sweep_context(sweep) | {"refused": typed}
    return render(request, "runs/sweeps/sweep_detail.html", context, status=refused.status)


def sweep_context(sweep: Sweep) -> dict[str, Any]:
    """What the page of a launched sweep shows, but for its board."""
    state = state_of(sweep)
    first = sweep.runs.values_list("spec", flat=True).first()
    held = state.in_state(*HELD)
    saved = newest_checkpoints(held)
    progress = state.progress()
    if progress["is_finished"]:
        specs = dict(sweep.runs.values_list("pk", "spec"))  # which state_of leaves out
        for run in state.runs:
            if run.pk in specs:
                run.spec = specs[run.pk]
        with_results(state.runs, timezone.now())
    reason = " reason" if not progress["is_finished"] or any(run.reason for run in state.runs) else ""
    search = search_view(sweep)
    return {
        "sweep": sweep,
        "search": search,
        "trial_counts": _trial_counts(search),
        "agent_changes": _agent_changes(sweep),
        "state": state,
        "progress": progress,
        "columns": ("result" if progress["is_finished"] else "") + reason + " finished",
        "suggested_seeds": _up_to_three(state.seeds),
        "compares_baseline": any(run.algorithm == BASELINE for run in state.runs),
        "has_results": any(run.state == State.COMPLETED for run in state.runs),
        "demo": demo_of(first) if first is not None else None,
        "score": None if first is None else _score_of(first["data"]),
        "can_pause": sweep.search_state == SearchState.SEARCHING or any(run.can_pause for run in state.current),
        "can_resume": sweep.search_state == SearchState.PAUSED or any(run.can_resume for run in state.current),
        "can_stop": sweep.is_searching or any(run.can_stop for run in state.current),
        # Stopping them loses what came after their checkpoint.
        "held": [(run, saved.get(run.pk)) for run in held],
        "num_waiting": len(state.current) - len(held) - sum(run.is_terminal for run in state.current),
        "retries": [(state.in_state(ended), str(ended)) for ended in (State.FAILED, State.STOPPED)],
        "counts": [(word, state.counts.get(word, 0)) for word in State.values if word != State.DRAFT],
    }


@require_GET
def sweep_trials(request: HttpRequest, sweep_id: int) -> HttpResponse:
    """The trials of a search, for its page: 204 while they are as in the version that `seen` names."""
    sweep = visible_sweep(request, sweep_id)
    search = search_view(sweep)
    if search is None:
        raise Http404
    if request.GET.get("seen") == search.version:
        return HttpResponse(status=204)
    context = {"sweep": sweep, "search": search, "trial_counts": _trial_counts(search)}
    return render(request, "runs/sweeps/_search.html", context)


def _agent_changes(sweep: Sweep) -> str:
    """Settings of single agents that all its runs have in place of their group's, as the form's field has them."""
    value = sweep.request.get("agents") or ""
    return value if isinstance(value, str) else text_of_changes(value)


def _trial_counts(search: SearchView | None) -> list[tuple[str, int]]:
    """The states that the trials' lines show, each with its number, in the order of a run's life."""
    counts = Counter(line.state for line in search.lines) if search else Counter()
    return [(state, counts[state]) for state in (*State.values, TrialState.PRUNED) if counts[state]]


def _score_of(data: dict[str, Any]) -> str:
    """The word for the runs' scores, with the sweep's benchmark: `accuracy on math`."""
    return f"{score_word([data.get('verifier', 'math')])} on {data['benchmark']}"


def _up_to_three(seeds: list[int]) -> str:
    """The seeds that bring a sweep to three, the fewest for a useful confidence interval."""
    further = [seed for seed in range(max(seeds, default=0) + 3) if seed not in seeds]
    return ", ".join(map(str, further[: max(0, 3 - len(seeds))]))


def _report(request: HttpRequest, affected: list[Run], done: str, nothing: str) -> None:
    """Show how many runs an act changed."""
    number = "1 run" if len(affected) == 1 else f"{len(affected)} runs"
    messages.info(request, done.format(number) if affected else nothing)


@require_POST
def sweep_change(request: HttpRequest, sweep_id: int, act: str) -> HttpResponse:
    """Stop, pause or resume all runs."""
    change, verb, done = ACTS[act]
    sweep = visible_sweep(request, sweep_id)
    runs = change(sweep, change_reason(f"{verb} with its sweep", request))
    _report(request, runs, done, f"There was no run to {act}.")
    return redirect(sweep)


@require_POST
def sweep_retry(request: HttpRequest, sweep_id: int) -> HttpResponse:
    """Launch a new run for each that has failed or, with `state` stopped, was stopped."""
    sweep = visible_sweep(request, sweep_id)
    try:
        new_runs = sweeps.retry_all(request.user, sweep, request.POST.get("state", State.FAILED))
        _report(request, new_runs, "Requeued {}.", "There was nothing to retry.")
    except FieldErrors as refused:
        messages.error(request, refused.text)
    return redirect(sweep)


@require_POST
def sweep_seeds(request: HttpRequest, sweep_id: int) -> HttpResponse:
    """Launch every variant on further seeds."""
    sweep = visible_sweep(request, sweep_id)
    try:
        new_runs = sweeps.add_seeds(request.user, sweep, split_list(request.POST.get("seeds", "")))
        _report(request, new_runs, "Queued {}.", "The sweep already has all of these seeds.")
    except FieldErrors as refused:
        return _refused(request, sweep, "seeds", refused)
    return redirect(sweep)


@require_POST
def sweep_rename(request: HttpRequest, sweep_id: int) -> HttpResponse:
    """Rename the sweep; its runs keep their names."""
    sweep = visible_sweep(request, sweep_id)
    try:
        sweeps.rename_sweep_to(sweep, request.POST.get("name", ""))
        messages.info(request, "The sweep has its new name.")
    except FieldErrors as refused:
        return _refused(request, sweep, "name", refused)
    return redirect(sweep)
