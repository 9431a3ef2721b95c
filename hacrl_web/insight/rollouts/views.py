"""The Rollouts tab of a run: the rollouts that match a filter, and one prompt with all agents side by side."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from hacrl_web.insight.recorded_steps import end, step_after, step_before
from hacrl_web.insight.rollouts.extraction import compare_extractions
from hacrl_web.insight.rollouts.filter import CLIPS, SIGNS, SORTS, PageCursor, RolloutFilter, read_filter
from hacrl_web.insight.rollouts.prompt_group import group_of
from hacrl_web.insight.rollouts.search import RolloutHit, RolloutPage, first_that_taught, hit_of, search_rollouts
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.models import Run
from hacrl_web.runs.pages.run_header import header, run_or_404
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import MAX_ID, encode_query, whole_number


@require_safe
def run_rollouts(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The rollouts that match the query, and the one that `rollout` names in full. Unreadable values are named."""
    run = run_or_404(request, run_id)
    rollout_filter, ignored = read_filter(request.GET, run.agent_names)
    ends = {"first": end(run.rollouts.all(), "step"), "last": end(run.rollouts.all(), "-step")}
    is_query_empty = not rollout_filter.encode()
    opening = {"after": str(PageCursor(ends["last"], 0))} if is_query_empty and ends["last"] is not None else {}
    page = search_rollouts(run, rollout_filter.model_copy(update=opening))
    selected = _selected(run, request.GET.get("rollout", ""), page.hits, prefers_teaching=is_query_empty)
    spec = stored_spec(run)  # also without rollouts: a page of settings that cannot be read says so
    group = group_of(run, spec, selected) if selected else None
    context = header(run) | {
        "tab": "rollouts",
        "rollout_filter": rollout_filter,
        "ignored": ignored,
        "signs": list(SIGNS),
        "clips": list(CLIPS),
        "ends": ends,
        "ended_early": f"{run.state.capitalize()} before the first step",
        "page": page,
        "lines": [_line(hit, _link(rollout_filter, hit), selected, run.agent_names) for hit in page.hits],
        "sorts": _sort_links(rollout_filter),
        "links": _links(rollout_filter, page, selected),
        "steps": _steps_beside(run, selected) if selected else {},
        "group": group,
        "selected": selected,
        "text_url": reverse("api-1:rollout_text", args=[run.pk]),
        "query": rollout_filter.encode(),
        "same_prompt": encode_query({"prompt": group.prompt_id}) if group else "",
    }
    return render(request, "insight/rollouts/rollouts.html", context)


@require_safe
def benchmark_extraction(request: HttpRequest, pk: int) -> HttpResponse:
    """The share of sampled answers that strict and flexible extraction each read."""
    benchmark = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)
    context: dict[str, Any] = {"benchmark": benchmark}
    status = 200
    try:
        context["shares"] = shares = compare_extractions(request.user, benchmark)
        total = max(shares["num_answers"], 1)
        context["rows"] = [
            (name, {"read": counts["read"] / total, "correct": counts["correct"] / total})
            for name, counts in (("strict", shares["strict"]), ("flexible", shares["flexible"]))
        ]
    except FieldErrors as refused:
        context["errors"], status = refused.errors, refused.status
    return render(request, "insight/rollouts/extraction.html", context, status=status)


def _steps_beside(run: Run, selected: RolloutHit) -> dict[str, int | None]:
    rows = run.rollouts.all()
    step = selected.sampled_step
    return {"before": step_before(rows, step), "after": step_after(rows, step)}


def _selected(run: Run, seq: str, hits: Sequence[RolloutHit], *, prefers_teaching: bool) -> RolloutHit | None:
    """The rollout to show in full: the one with this number, else the first of the page, or with `last` its last.

    prefers_teaching: the first that taught a learner comes before the first.
    """
    number = whole_number(seq, MAX_ID)
    if number is not None and (hit := hit_of(run, number)):
        return hit
    if not hits:
        return None
    if seq == "last":
        return hits[-1]
    return (first_that_taught(run, hits[0].step) if prefers_teaching else None) or hits[0]


@dataclass(frozen=True)
class RolloutLine:
    """A hit in the list."""

    hit: RolloutHit
    url: str
    is_selected: bool
    position: int | None
    learner_position: int | None


def _line(hit: RolloutHit, url: str, selected: RolloutHit | None, agents: Sequence[str]) -> RolloutLine:
    is_selected = selected is not None and _is_same(hit, selected)
    learner = hit.taught.learner if hit.taught else ""
    places = [agents.index(name) if name in agents else None for name in (hit.agent, learner)]
    return RolloutLine(hit, url, is_selected, *places)


def _link(rollout_filter: RolloutFilter, hit: RolloutHit) -> str:
    return "?" + rollout_filter.encode(rollout=hit.seq)


def _sort_links(rollout_filter: RolloutFilter) -> dict[str, dict[str, object]]:
    """For each sort: where its header leads, which for the present sort is the order of steps."""
    links: dict[str, dict[str, object]] = {}
    for sort, explanation in SORTS.items():
        is_sorted = sort == rollout_filter.sort
        query = rollout_filter.encode(sort=None if is_sorted else sort, after=None, before=None)
        links[sort] = {"url": f"?{query}", "is_sorted": is_sorted, "help": explanation}
    return links


def _is_same(one: RolloutHit, other: RolloutHit) -> bool:
    """The same rollout in the same step, and of the same learner if both name one."""
    learners = {hit.taught.learner for hit in (one, other) if hit.taught is not None}
    first, second = ((hit.step, hit.place, hit.agent, hit.sample) for hit in (one, other))
    return first == second and len(learners) <= 1


def _links(rollout_filter: RolloutFilter, page: RolloutPage, selected: RolloutHit | None) -> dict[str, str]:
    """Where the keys n, p, N and P go, and the pages before and after this one."""
    hits = page.hits
    onward = "?" + rollout_filter.encode(after=page.after, before=None) if page.after else ""
    back = "?" + rollout_filter.encode(after=None, before=page.before, rollout="last") if page.before else ""
    at = next((i for i, hit in enumerate(hits) if selected is not None and _is_same(hit, selected)), None)

    def to(hit: RolloutHit | None, otherwise: str) -> str:
        return otherwise if hit is None else _link(rollout_filter, hit)

    before, behind = (hits[:at][::-1], hits[at + 1 :]) if at is not None else ([], hits)
    place = hits[at].place if at is not None else None
    last_before = next((hit for hit in before if hit.place != place), None)
    return {
        "onward": onward,
        "back": back,
        "n": to(next(iter(behind), None), onward),
        "p": to(next(iter(before), None), back),
        "N": to(next((hit for hit in behind if hit.place != place), None), onward),
        "P": to(next((hit for hit in hits if last_before and hit.place == last_before.place), None), back),
    }
