"""The Rollouts tab of a run: what was asked for, and one prompt with all agents side by side."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from hacrl_web.insight.recorded_steps import end, step_after, step_before
from hacrl_web.insight.rollouts.detail import group_of
from hacrl_web.insight.rollouts.filter import CLIPS, SIGNS, Filter, PageCursor, read_cursor, read_filter
from hacrl_web.insight.rollouts.search import Hit, RolloutPage, first_that_taught, hit_of, search_rollouts
from hacrl_web.runs.models import Run
from hacrl_web.runs.pages.runs import header, run_or_404
from hacrl_web.runs.stored_spec import stored_spec


@require_safe
def run_rollouts(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The rollouts that the query asks for, one of them in full. Odd values are named and left out."""
    run = run_or_404(request, run_id)
    rollout_filter = read_filter(request.GET, run.agent_names)
    ends = {"first": end(run.rollouts.all(), "step"), "last": end(run.rollouts.all(), "-step")}
    page = _page(run, rollout_filter, request.GET, ends["last"])
    selected = _selected(run, request.GET, page.hits, is_asked=bool(rollout_filter.given))
    spec = stored_spec(run)
    group = group_of(run, spec.rule, selected) if selected else None
    context = header(run) | {
        "tab": "rollouts",
        "asked": rollout_filter,
        "signs": SIGNS,
        "clips": list(CLIPS),
        "ends": ends,
        "page": page,
        "lines": [_line(one, rollout_filter, request.GET, selected, run.agent_names) for one in page.hits],
        "links": _links(rollout_filter, page, selected, request.GET),
        "steps": _steps(run, selected),
        "group": group,
        "selected": selected,
        "text_url": reverse("api-1:rollout_text", args=[run.pk]),
        "keep": rollout_filter.query(after=request.GET.get("after"), before=request.GET.get("before")),
        "same_prompt": Filter(given={"prompt": group.prompt_id}).query() if group else "",
    }
    return render(request, "insight/rollouts/rollouts.html", context)


def _page(run: Run, rollout_filter: Filter, query: Any, last_step: int | None) -> RolloutPage:
    after, before = read_cursor(query.get("after", "")), read_cursor(query.get("before", ""))
    if before is not None:
        return search_rollouts(run, rollout_filter, before, is_backward=True)
    if after is None and not rollout_filter.given and last_step is not None:
        # Nothing asked for: the newest step, from where one can go back.
        after = PageCursor(max(0, last_step), 0)
    return search_rollouts(run, rollout_filter, after)


def _selected(run: Run, query: Any, hits: Sequence[Hit], *, is_asked: bool) -> Hit | None:
    """The rollout in full: the one that is named, else the first of the page (or its last, where one came back).

    Where nothing was asked for, one that taught something comes before one that did not.
    """
    written = query.get("rollout", "")
    if written.isascii() and written.isdigit() and len(written) <= 18:
        hit = hit_of(run, int(written))
        if hit is not None:
            return hit
    if not hits:
        return None
    if written == "last":
        return hits[-1]
    is_opened = not is_asked and not {"after", "before"} & set(query)
    return (first_that_taught(run, hits[0].step) if is_opened else None) or hits[0]


@dataclass(frozen=True)
class RolloutLine:
    """A hit in the list."""

    hit: Hit
    url: str
    is_selected: bool
    position: int | None
    learner_position: int | None


def _line(hit: Hit, rollout_filter: Filter, query: Any, selected: Hit | None, agents: Sequence[str]) -> RolloutLine:
    url = "?" + rollout_filter.query(after=query.get("after"), before=query.get("before"), rollout=hit.seq)
    is_selected = selected is not None and _is_same(hit, selected)
    learner = hit.taught.learner if hit.taught else ""
    places = [agents.index(name) if name in agents else None for name in (hit.agent, learner)]
    return RolloutLine(hit, url, is_selected, *places)


def _is_same(one: Hit, other: Hit) -> bool:
    """The same rollout; where both speak of a learner, of the same one."""
    learners = {hit.taught.learner for hit in (one, other) if hit.taught is not None}
    return (one.place, one.agent, one.sample) == (other.place, other.agent, other.sample) and len(learners) <= 1


def _links(rollout_filter: Filter, page: RolloutPage, selected: Hit | None, query: Any) -> dict[str, str]:
    """Where the keys n, p, N and P go, and the pages before and after this one."""
    hits = page.hits
    onward = "?" + rollout_filter.query(after=page.after) if page.after else ""
    back = "?" + rollout_filter.query(before=page.before, rollout="last") if page.before else ""
    links = {"onward": onward, "back": back}
    at = next((i for i, hit in enumerate(hits) if selected is not None and _is_same(hit, selected)), None)

    def to(hit: Hit | None, otherwise: str) -> str:
        if hit is None:
            return otherwise
        return "?" + rollout_filter.query(after=query.get("after"), before=query.get("before"), rollout=hit.seq)

    before, behind = (hits[:at][::-1], hits[at + 1 :]) if at is not None else ([], hits)
    place = hits[at].place if at is not None else None
    links["n"] = to(next(iter(behind), None), onward)
    links["p"] = to(next(iter(before), None), back)
    links["N"] = to(next((hit for hit in behind if hit.place != place), None), onward)
    last_before = next((hit for hit in before if hit.place != place), None)
    links["P"] = to(next((hit for hit in hits if last_before and hit.place == last_before.place), None), back)
    return links


def _steps(run: Run, selected: Hit | None) -> dict[str, int | None]:
    """The recorded steps beside the one that is shown."""
    if selected is None:
        return {}
    rows = run.rollouts.all()
    return {"before": step_before(rows, selected.step), "after": step_after(rows, selected.step)}
