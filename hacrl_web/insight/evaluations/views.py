"""The Evaluations tab: estimates by agent, their curve and slices, and every question with the agents side by side.

Two evaluations are compared: two steps of this run, or a step of another run (`against`) and one of this. What an
address asks for and is not there is left out, so that an old one still shows something.
"""

from __future__ import annotations

import csv
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from hacrl_web.insight.evaluations import answer_sheets as sheets
from hacrl_web.insight.evaluations.evaluations import OfBenchmark, curve, evaluation_summary
from hacrl_web.runs.models import Run
from hacrl_web.runs.pages.runs import header, run_or_404
from hacrl_web.web.streaming import Echo, csv_cell, download
from workers.contract.events import ANSWERS_AT_ONCE

PAGE_SIZE = 50
RUNS_OFFERED = 30
NEVER = 2**31 - 1


@dataclass(frozen=True)
class Asked:
    """What the address chooses, already sound. against: the other run, None where it is this one."""

    benchmark: OfBenchmark
    benchmark_before: OfBenchmark  # as the other run asked it
    before: sheets.Side
    after: sheets.Side
    against: Run | None
    wanted: sheets.SheetQuery
    given: Mapping[str, str]

    def query(self, **changes: Any) -> str:
        """The address of the same view with changes; None or empty leaves a part out."""
        return urlencode({key: value for key, value in {**self.given, **changes}.items() if value not in (None, "")})


def _asked(request: HttpRequest, run: Run, benchmarks: list[OfBenchmark]) -> Asked:
    query = request.GET
    benchmark = next((one for one in benchmarks if one.name == query.get("benchmark")), benchmarks[0])
    against = _other_run(request, run)
    after = _step(query.get("to", ""), benchmark.steps, benchmark.steps[-1])
    other = next((one for one in evaluation_summary(against) if one.name == benchmark.name), None) if against else None
    against = against if other else None
    steps = (other or benchmark).steps
    before = _step(query.get("from", ""), steps, steps[-1] if other else steps[0])
    names = run.agent_names
    agent = query.get("agent", "")
    show = query.get("show", "")
    sheet_query = sheets.SheetQuery(
        show=show if show in sheets.FILTERS else "",
        agent=names.index(agent) if agent in names else None,
        subject=_text(query.get("subject", "")),
        difficulty=_text(query.get("difficulty", "")),
        text=_text(query.get("q", "")),
    )
    parameters = {
        "benchmark": benchmark.name if benchmark is not benchmarks[0] else "",
        "from": str(before),
        "to": str(after),
        "against": str(against.pk) if against else "",
        "show": sheet_query.show,
        "agent": agent if sheet_query.agent is not None else "",
        "subject": sheet_query.subject,
        "difficulty": sheet_query.difficulty,
        "q": sheet_query.text,
    }
    sides = sheets.Side(against or run, before), sheets.Side(run, after)
    return Asked(benchmark, other or benchmark, *sides, against, sheet_query, parameters)


def _text(text: str) -> str:
    return text.replace("\x00", "").strip()[:200]


def _step(text: str, steps: list[int], otherwise: int) -> int:
    step = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else NEVER
    return step if step in steps else otherwise


def _other_run(request: HttpRequest, run: Run) -> Run | None:
    try:
        other = uuid.UUID(request.GET.get("against", ""))
    except ValueError:
        return None
    runs: Any = Run.objects.visible_to(request.user)
    return None if other == run.pk else runs.filter(pk=other).first()


def _pair(selection: Asked) -> tuple[sheets.EvaluationPair, sheets.SheetQuery]:
    """Both evaluations, and what is wanted with the agent's place among those that were evaluated."""
    pair = sheets.read_pair(selection.benchmark.name, selection.before, selection.after)
    place = next((at for at, (place, _, _) in enumerate(pair.agents) if place == selection.wanted.agent), None)
    query = selection.wanted
    return pair, sheets.SheetQuery(query.show, place, query.subject, query.difficulty, query.text)


@require_safe
def run_evaluations(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The tab. `question` opens one: its place among the questions of the benchmark."""
    run = run_or_404(request, run_id)
    benchmarks = evaluation_summary(run)
    context = header(run) | {"tab": "evaluations", "benchmarks": benchmarks}
    if not benchmarks:
        return render(request, "insight/evaluations/evaluations.html", context)
    selection = _asked(request, run, benchmarks)
    before, after = selection.before.step, selection.after.step
    pair, query = _pair(selection)
    places, counted = sheets.matching_places(pair, query)
    page = Paginator(places, PAGE_SIZE).get_page(request.GET.get("page"))
    texts = sheets.texts_of_questions(run, selection.benchmark.name, page.object_list, ANSWERS_AT_ONCE)
    opened = _opened(request.GET.get("question", ""), selection, pair, places)
    context |= {
        "asked": selection,
        "benchmark": selection.benchmark,
        "questions_differ": _digests(selection.benchmark_before, before) != _digests(selection.benchmark, after),
        "names": selection.benchmark.estimate_names(after),
        "agent_rows": _agent_rows(selection),
        "slice_rows": _slice_rows(selection),
        "figure": curve(selection.benchmark),
        "links": [{"name": one.name, "query": selection.query(benchmark=one.name, q=None)} for one in benchmarks],
        "filters": [
            {"show": show, "label": label, "count": counted[show], "query": selection.query(show=show)}
            for show, label in sheets.FILTERS.items()
            if selection.before != selection.after or show not in ("gained", "lost")
        ],
        "pair": pair,
        "page": page,
        "query": selection.query(),
        "rows": [_row(pair, place, texts, selection, page.number) for place in page.object_list],
        "subjects": sorted(set(pair.questions.subjects) - {""}),
        "difficulties": sorted(set(pair.questions.difficulties) - {""}),
        "has_difficulties": any(pair.questions.difficulties),
        "opened": opened,
        "runs": _comparable(request, run),
    }
    return render(request, "insight/evaluations/evaluations.html", context)


def _comparable(request: HttpRequest, run: Run) -> Any:
    """The newest runs on the same benchmark, to choose from."""
    runs: Any = Run.objects.visible_to(request.user).filter(benchmark=run.benchmark_id).exclude(pk=run.pk)
    return runs.only("pk", "name").order_by("-created_at")[:RUNS_OFFERED] if run.benchmark_id else []


def _digests(benchmark: OfBenchmark, step: int) -> set[str]:
    """Of the questions that were asked at a step."""
    return {point.questions for agent in benchmark.agents if (point := agent.at(step))}


def _agent_rows(selection: Asked) -> list[dict[str, Any]]:
    names = [one["name"] for one in selection.benchmark.estimate_names(selection.after.step)]
    rows = []
    for agent in selection.benchmark.agents:
        point = agent.at(selection.after.step)
        values = [{"name": name, "value": point.estimates.get(name) if point else None} for name in names]
        rows.append({"agent": agent, "point": point, "values": values})
    return rows


def _slice_rows(selection: Asked) -> list[dict[str, Any]]:
    """Of each slice, each agent's share at the chosen step, and at the start of this run."""
    rows = []
    for name in selection.benchmark.slice_names(selection.after.step):
        cells = []
        for agent in selection.benchmark.agents:
            point = agent.at(selection.after.step)
            right, scored = point.slices.get(name, (0, 0)) if point else (0, 0)
            cells.append({"share": right / scored if scored else None, "right": right, "scored": scored})
        rows.append({"name": name, "cells": cells})
    return rows


def _row(
    pair: sheets.EvaluationPair, place: int, texts: Mapping[int, str], selection: Asked, page_number: int | None = None
) -> dict[str, Any]:
    questions = pair.questions
    return {
        "place": place,
        "id": questions.ids[place],
        "subject": questions.subjects[place],
        "difficulty": questions.difficulties[place],
        "answer": questions.answers[place],
        "text": texts.get(place, ""),
        "marks": [
            {"agent": agent, "before": before, "after": after}
            for at, agent in enumerate(pair.agents)
            for before, after in [pair.marks(place, at)]
        ],
        "query": selection.query(page=page_number if page_number != 1 else None, question=place),
    }


def _opened(text: str, selection: Asked, pair: sheets.EvaluationPair, places: list[int]) -> dict[str, Any] | None:
    """The question in full, with what each agent answered in both evaluations, and its neighbours in the list."""
    place = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else NEVER
    if place >= len(pair.questions.ids):
        return None
    name, at = selection.benchmark.name, pair.places_before[place]
    after = sheets.responses(selection.after, name, place, ANSWERS_AT_ONCE)
    before = {} if at is None else sheets.responses(selection.before, name, at, ANSWERS_AT_ONCE)
    row = _row(pair, place, sheets.texts_of_questions(selection.after.run, name, [place], ANSWERS_AT_ONCE), selection)
    for mark in row["marks"]:
        _, agent, partner = mark["agent"]
        mark["response_before"], mark["response_after"] = before.get(partner), after.get(agent)
    here = places.index(place) if place in places else None
    beside = {} if here is None else {"p": places[:here][-1:], "n": places[here + 1 : here + 2]}
    links = {key: _query_of(selection, places, other) for key, one in beside.items() for other in one}
    return row | {"links": links, "closed": selection.query(page=here // PAGE_SIZE + 1 if here else None)}


def _query_of(selection: Asked, places: list[int], place: int) -> str:
    """The address of a question, on the page of the list where it stands."""
    page = places.index(place) // PAGE_SIZE + 1
    return selection.query(page=page if page > 1 else None, question=place)


@require_safe
def evaluations_csv(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse | StreamingHttpResponse:
    """The questions that the tab lists under the same address, all pages of them."""
    run = run_or_404(request, run_id)
    benchmarks = evaluation_summary(run)

    def lines() -> Iterator[str]:
        writer = csv.writer(Echo())
        if not benchmarks:
            yield writer.writerow(["question"])
            return
        selection = _asked(request, run, benchmarks)
        pair, query = _pair(selection)
        sides = (
            f"step {selection.before.step}{' of the other run' if selection.against else ''}",
            f"step {selection.after.step}",
        )
        heads = [
            f"{name}, {side}, {what}"
            for _, name, _ in pair.agents
            for side in sides
            for what in ("right", "scored", "most frequent answer")
        ]
        yield writer.writerow(csv_cell(cell) for cell in ["question", "subject", "difficulty", "reference", *heads])
        for place in sheets.matching_places(pair, query)[0]:
            row = _row(pair, place, {}, selection)
            cells = [row["id"], row["subject"], row["difficulty"], row["answer"]]
            for mark in row["marks"]:
                for one in (mark["before"], mark["after"]):
                    cells += [one.num_right, one.num_scored, one.majority]
            yield writer.writerow(csv_cell(cell) for cell in cells)

    return download(request, lines(), f"evaluation-{run.pk}.csv", "text/csv")
