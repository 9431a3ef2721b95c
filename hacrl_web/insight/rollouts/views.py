"""The Rollouts tab of a run: the rollouts that match a filter, and one prompt with all agents side by side."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from hacrl_web.insight.recorded_steps import end, step_after, step_before
from hacrl_web.insight.rollouts.filter import SORTS, PageCursor, RolloutFilter, read_filter
from hacrl_web.insight.rollouts.prompt_group import PromptGroup, group_of
from hacrl_web.insight.rollouts.prompt_list import PromptLine, PromptPage, list_prompts
from hacrl_web.insight.rollouts.query_bar import WORDS, chips, completions, read_query
from hacrl_web.insight.rollouts.search import RolloutHit, RolloutPage, first_that_taught, hit_of, search_rollouts
from hacrl_web.runs.models import Run
from hacrl_web.runs.run.header import header, run_or_404
from hacrl_web.runs.storage.stored_spec import recorded_spec
from hacrl_web.web.page_query import MAX_ID, clean_text, encode_query, whole_number
from workers.contract.spec.run import RunSpec


@require_safe
def run_rollouts(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The rollouts that match the query, and the one that `rollout` names in full. Unreadable values are named."""
    run = run_or_404(request, run_id)
    if "query" in request.GET:
        return HttpResponseRedirect(f"{request.path}?{_typed(request.GET, run.agent_names)}")
    rollout_filter, ignored = read_filter(request.GET, run.agent_names)
    ends = {"first": end(run.rollouts.all(), "step"), "last": end(run.rollouts.all(), "-step")}
    spec = recorded_spec(run)  # also without rollouts: a page of settings that cannot be read says so
    seq = request.GET.get("rollout", "")
    listing = _rollouts if rollout_filter.listing else _prompts
    context = header(run) | listing(run, spec, rollout_filter, seq, ends["last"])
    selected, group = context["selected"], context["group"]
    context |= {
        "tab": "rollouts",
        "has_partial_credit": spec.has_partial_credit,
        "rollout_filter": rollout_filter,
        "ignored": ignored,
        "chips": chips(rollout_filter),
        "kept": rollout_filter.model_dump(by_alias=True, exclude_defaults=True, exclude={"after", "before"}),
        "words": WORDS,
        "completions": completions(run.agent_names),
        "ends": ends,
        "ended_early": f"{run.state.capitalize()} before the first step",
        "sorts": _sort_links(rollout_filter),
        "steps": _steps_beside(run, rollout_filter, selected) if selected else [],
        "listings": [
            (name, "?" + rollout_filter.encode(list=value, after=None, before=None), value == rollout_filter.listing)
            for name, value in (("Prompts", ""), ("Rollouts", "rollouts"))
        ],
        "text_url": reverse("api-1:rollout_text", args=[run.pk]),
        "query": rollout_filter.encode(),
        "is_weight_open": request.GET.get("part") == "weight",
        "same_prompt": encode_query({"prompt": group.prompt_id}) if group else "",
    }
    return render(request, "insight/rollouts/rollouts.html", context)


def _typed(query: QueryDict, agents: Sequence[str]) -> str:
    """The address of what the query bar holds: its chips, what was typed, and the switches of the page."""
    values = RolloutFilter.read(query).model_dump(by_alias=True, exclude_defaults=True)
    switches = {name: query[name] for name in ("maths", "part") if name in query}
    typed = read_query(clean_text(query["query"]), agents)
    if "agent" in typed:
        values.pop("source", None)
    return encode_query(values | typed | switches)


def _prompts(run: Run, spec: RunSpec, rollout_filter: RolloutFilter, seq: str, last: int | None) -> dict[str, Any]:
    """The context of the list of prompts; without a filter, of the newest step's."""
    number = whole_number(seq, MAX_ID)
    selected = hit_of(run, number) if number is not None else None
    step = selected.step if selected else last
    is_open = not rollout_filter.encode(sort=None, after=None, before=None) and step is not None
    page = list_prompts(run, rollout_filter.model_copy(update={"step": str(step)}) if is_open else rollout_filter)
    if selected is None and page.lines:
        selected = hit_of(run, page.lines[-1 if seq == "last" else 0].seq)
    group = group_of(run, spec, selected) if selected else None
    return {
        "page": page,
        "lines": [(line, _link(rollout_filter, line.seq), _is_open(line, selected)) for line in page.lines],
        "has_one_step": len({line.step for line in page.lines}) == 1,
        "selected": selected,
        "group": group,
        "links": _prompt_links(rollout_filter, page, selected, group),
    }


def _rollouts(run: Run, spec: RunSpec, rollout_filter: RolloutFilter, seq: str, last: int | None) -> dict[str, Any]:
    """The context of the list of rollouts; without a filter, from the newest step on."""
    is_open = not rollout_filter.encode(list=None) and last is not None
    opening = {"after": str(PageCursor(last or 0, 0))} if is_open else {}
    page = search_rollouts(run, rollout_filter.model_copy(update=opening))
    selected = _selected(run, seq, page.hits, prefers_teaching=is_open)
    # The rewards that have a column are those of the first rollout that has several.
    names: list[str] = next(([*hit.rewards] for hit in page.hits if hit.rewards), [])
    places = {name: place for place, name in enumerate(run.agent_names)}
    lines = [
        RolloutLine(
            hit,
            _link(rollout_filter, hit.seq),
            selected is not None and _is_same(hit, selected),
            places.get(hit.agent),
            places.get(hit.taught.learner if hit.taught else ""),
            [(hit.rewards or {}).get(name) for name in names],
        )
        for hit in page.hits
    ]
    return {
        "page": page,
        "lines": lines,
        "reward_names": names,
        "selected": selected,
        "group": group_of(run, spec, selected) if selected else None,
        "links": _links(rollout_filter, page, selected),
    }


def _steps_beside(run: Run, rollout_filter: RolloutFilter, selected: RolloutHit) -> list[tuple[int, str]]:
    """The recorded steps before and after, with where they lead."""
    rows, step = run.rollouts.all(), selected.step
    steps = [one for one in (step_before(rows, step), step_after(rows, step)) if one is not None]
    return [(one, "?" + rollout_filter.encode(step=one, after=None, before=None)) for one in steps]


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
    rewards: list[float | None]  # in the order of the columns


def _link(rollout_filter: RolloutFilter, seq: int) -> str:
    return "?" + rollout_filter.encode(rollout=seq)


def _is_open(line: PromptLine, selected: RolloutHit | None) -> bool:
    return selected is not None and line.key == (selected.step, selected.prompt_id)


def _pages(rollout_filter: RolloutFilter, page: PromptPage | RolloutPage) -> tuple[str, str]:
    """The pages after and before this one."""
    onward = "?" + rollout_filter.encode(after=page.after, before=None) if page.after else ""
    return onward, "?" + rollout_filter.encode(after=None, before=page.before, rollout="last") if page.before else ""


def _prompt_links(
    rollout_filter: RolloutFilter, page: PromptPage, selected: RolloutHit | None, group: PromptGroup | None
) -> dict[str, str]:
    """The links of the keys: n and p go from answer to answer of the prompt, and on to the next prompt."""
    onward, back = _pages(rollout_filter, page)
    at = next((place for place, line in enumerate(page.lines) if _is_open(line, selected)), None)
    behind = page.lines[at + 1 :] if at is not None else page.lines
    following = _link(rollout_filter, behind[0].seq) if behind else onward
    preceding = _link(rollout_filter, page.lines[at - 1].seq) if at else back
    cards = [card for column in (group.columns if group else []) for card in column.cards]
    answers = [_link(rollout_filter, card.row["seq"]) for card in cards]
    here = next((place for place, card in enumerate(cards) if card.is_selected), None)
    forth = answers[here + 1] if here is not None and here + 1 < len(answers) else following
    keys = {"n": forth, "p": answers[here - 1] if here else preceding, "N": following, "P": preceding}
    return {"onward": onward, "back": back, **keys}


def _sort_links(rollout_filter: RolloutFilter) -> dict[str, dict[str, object]]:
    """For each sort: where its header leads, which for the present sort is the order of steps."""
    links: dict[str, dict[str, object]] = {}
    for sort, explanation in SORTS.items():
        is_sorted = sort == rollout_filter.sort
        query = rollout_filter.encode(sort=None if is_sorted else sort, after=None, before=None)
        links[sort] = {"url": f"?{query}", "is_sorted": is_sorted, "help": explanation, "label": sort}
    return links


def _is_same(one: RolloutHit, other: RolloutHit) -> bool:
    """Whether two hits are the same rollout of a step, and of the same learner if both name one."""
    learners = {hit.taught.learner for hit in (one, other) if hit.taught is not None}
    first, second = ((hit.step, hit.place, hit.agent, hit.sample) for hit in (one, other))
    return first == second and len(learners) <= 1


def _links(rollout_filter: RolloutFilter, page: RolloutPage, selected: RolloutHit | None) -> dict[str, str]:
    """The addresses to which the keys n, p, N and P lead, and those of the pages before and after this one."""
    hits, (onward, back) = page.hits, _pages(rollout_filter, page)
    at = next((i for i, hit in enumerate(hits) if selected is not None and _is_same(hit, selected)), None)
    before, behind = (hits[:at][::-1], hits[at + 1 :]) if at is not None else ([], hits)
    place = hits[at].place if at is not None else None
    place_before = next((hit.place for hit in before if hit.place != place), None)

    def to(found: Iterable[RolloutHit], otherwise: str) -> str:
        return next((_link(rollout_filter, hit.seq) for hit in found), otherwise)

    return {
        "onward": onward,
        "back": back,
        "n": to(behind, onward),
        "p": to(before, back),
        "N": to((hit for hit in behind if hit.place != place), onward),
        "P": to((hit for hit in hits if hit.place == place_before), back),
    }
