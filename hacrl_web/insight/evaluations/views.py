"""The Evaluations tab of a run, its CSV, and the form that starts an evaluation.

The tab compares two evaluations: two steps of this run, or a step of another run (`against`) and one of this run. It
leaves out values of its address that do not exist, so that old addresses still show something.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe
from pydantic import Field

from hacrl_web.accounts.models import User
from hacrl_web.accounts.roles.projects import for_members
from hacrl_web.insight.evaluations import answer_sheets as sheets
from hacrl_web.insight.evaluations.evaluations import BenchmarkEvaluations, curve, evaluation_summary
from hacrl_web.insight.evaluations.harness_results import lines_of_run, rows_for_csv
from hacrl_web.insight.evaluations.new_evaluation import (
    KEYS,
    LISTS,
    USUAL_LENGTH,
    find_run,
    launch_evaluation,
    visible_row,
)
from hacrl_web.registry.models import MAX_AGENTS, AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import Run
from hacrl_web.runs.run.header import header, run_or_404
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.page_query import PageQuery, Text, Whole, one_of, page_of
from hacrl_web.web.streaming import download_csv

PAGE_SIZE = 50
RUNS_OFFERED = 30
MAX_CHOICES = 500
# Name, label, help, unit.
NUMBERS = (
    ("num_samples", "Samples per question", "k of avg@k, pass@k, maj@k and best@k.", ""),
    ("temperature", "Temperature", "0: greedy; more than one sample needs more than 0.", ""),
    (
        "max_completion_length",
        "Response tokens at most",
        "As in training, for scores to be compared with it. "
        f"Empty: {USUAL_LENGTH:,}, or what the shortest context allows.",
        "tokens",
    ),
    ("max_questions", "Questions of each benchmark at most", "0: all that are held out.", "questions"),
    ("seed", "Seed", "Of sampling.", ""),
)
DEFAULTS = {"num_samples": "1", "temperature": "0", "max_questions": "0", "seed": "0"}


class EvaluationsQuery(sheets.QuestionQuery):
    """Which evaluations are compared, and which questions are listed. question: the place of the opened one."""

    benchmark: Text = ""
    before: Whole | None = Field(None, alias="from")
    after: Whole | None = Field(None, alias="to")
    against: Text = ""
    question: Whole | None = None


@dataclass(frozen=True)
class EvaluationChoice:
    """The evaluations that an address chooses. against: the other run; None if both are of this one."""

    benchmark: BenchmarkEvaluations
    benchmark_before: BenchmarkEvaluations  # in the other run
    before: sheets.EvaluatedStep
    after: sheets.EvaluatedStep
    against: Run | None
    query: EvaluationsQuery  # of what exists, without an opened question


def _choice(user: User, query: EvaluationsQuery, run: Run, benchmarks: list[BenchmarkEvaluations]) -> EvaluationChoice:
    benchmark = next((one for one in benchmarks if one.name == query.benchmark), benchmarks[0])
    against = find_run(user, query.against)
    against = None if against == run else against
    others = evaluation_summary(against) if against else []
    other = next((one for one in others if one.name == benchmark.name), None)
    against = against if other else None
    steps = (other or benchmark).steps
    after = query.after if query.after in benchmark.steps else benchmark.steps[-1]
    before = query.before if query.before in steps else steps[-1 if other else 0]
    changes = {
        "benchmark": benchmark.name if benchmark is not benchmarks[0] else "",
        "before": before,
        "after": after,
        "against": str(against.pk) if against else "",
        "show": one_of(query.show, sheets.FILTERS),
        "agent": one_of(query.agent, run.agent_names),
        "question": None,
    }
    return EvaluationChoice(
        benchmark,
        other or benchmark,
        sheets.EvaluatedStep(against or run, before),
        sheets.EvaluatedStep(run, after),
        against,
        query.model_copy(update=changes),
    )


@require_safe
def run_evaluations(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The tab; `question` opens the question at a place of the benchmark."""
    run = run_or_404(request, run_id)
    benchmarks = evaluation_summary(run)
    context = header(run) | {"tab": "evaluations", "benchmarks": benchmarks}
    context["harness_lines"] = lines_of_run(run, request.user)
    if not benchmarks:
        return render(request, "insight/evaluations/evaluations.html", context)
    page_query = EvaluationsQuery.read(request.GET)
    choice = _choice(request.user, page_query, run, benchmarks)
    benchmark, query = choice.benchmark, choice.query
    before, after = choice.before.step, choice.after.step
    pair = sheets.read_pair(benchmark.name, choice.before, choice.after)
    places, counted = sheets.matching_places(pair, query)
    page = page_of(request, places, PAGE_SIZE)
    texts = sheets.texts_of_questions(run, benchmark.name, page.object_list)
    context |= {
        "choice": choice,
        "benchmark": benchmark,
        "questions_differ": _digests(choice.benchmark_before, before) != _digests(benchmark, after),
        "names": benchmark.estimate_names(after),
        "agent_rows": _agent_rows(benchmark, after),
        "slice_rows": _slice_rows(benchmark, after),
        "figure": curve(benchmark),
        "links": [{"name": one.name, "query": query.encode(benchmark=one.name, q=None)} for one in benchmarks],
        "filters": [
            {"show": show, "label": label, "count": counted[show], "query": query.encode(show=show)}
            for show, label in sheets.FILTERS.items()
            if choice.before != choice.after or show not in ("gained", "lost")
        ],
        "pair": pair,
        "page": page,
        "query": query.encode(),
        "rows": [_row(pair, place, texts, query, page.number) for place in page.object_list],
        "subjects": sorted(set(pair.questions.subjects) - {""}),
        "difficulties": sorted(set(pair.questions.difficulties) - {""}),
        "opened": _opened(page_query.question, choice, pair, places),
        "runs": _comparable(request, run),
    }
    return render(request, "insight/evaluations/evaluations.html", context)


def _comparable(request: HttpRequest, run: Run) -> Any:
    """The newest runs on the same benchmark, to choose from."""
    runs: Any = Run.objects.visible_to(request.user).filter(benchmark=run.benchmark_id).exclude(pk=run.pk)
    return runs.only("pk", "name").order_by("-created_at")[:RUNS_OFFERED] if run.benchmark_id else []


def _digests(benchmark: BenchmarkEvaluations, step: int) -> set[str]:
    """The digests of the questions of a step's evaluations."""
    return {point.questions for agent in benchmark.agents if (point := agent.at(step))}


def _agent_rows(benchmark: BenchmarkEvaluations, step: int) -> list[dict[str, Any]]:
    names = [one["name"] for one in benchmark.estimate_names(step)]
    points = [(agent, agent.at(step)) for agent in benchmark.agents]
    return [
        {
            "agent": agent,
            "point": point,
            "values": [{"name": name, "value": point.estimates.get(name) if point else None} for name in names],
        }
        for agent, point in points
    ]


def _slice_rows(benchmark: BenchmarkEvaluations, step: int) -> list[dict[str, Any]]:
    """Each agent's share of correct answers in each slice."""
    rows = []
    points = [(agent.name, agent.at(step)) for agent in benchmark.agents]
    for name in sorted({name for _, point in points if point for name in point.slices}):
        cells = []
        for agent, point in points:
            correct, scored = point.slices.get(name, (0, 0)) if point else (0, 0)
            share = correct / scored if scored else None
            cells.append({"agent": agent, "share": share, "correct": correct, "scored": scored})
        rows.append({"name": name, "cells": cells})
    return rows


def _row(
    pair: sheets.EvaluationPair, place: int, texts: Mapping[int, str], query: EvaluationsQuery, page_number: int = 1
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
        "query": query.encode(page=page_number if page_number > 1 else None, question=place),
    }


def _opened(
    place: int | None, choice: EvaluationChoice, pair: sheets.EvaluationPair, places: list[int]
) -> dict[str, Any] | None:
    """The question in full, with each agent's responses in both evaluations, and its neighbours in the list."""
    if place is None or place >= len(pair.questions.ids):
        return None
    name, at = choice.benchmark.name, pair.places_before[place]
    after = sheets.responses(choice.after, name, place)
    before = {} if at is None else sheets.responses(choice.before, name, at)
    texts = sheets.texts_of_questions(choice.after.run, name, [place])
    row = _row(pair, place, texts, choice.query)
    for mark in row["marks"]:
        _, agent, partner = mark["agent"]
        mark["response_before"], mark["response_after"] = before.get(partner), after.get(agent)

    def link(at: int, **question: int) -> str:
        """The address of the page of the list that has the entry number `at`."""
        return choice.query.encode(page=at // PAGE_SIZE + 1 if at >= PAGE_SIZE else None, **question)

    if place not in places:
        return row | {"links": {}, "closed": choice.query.encode()}
    here = places.index(place)
    beside = {"p": here - 1, "n": here + 1}
    links = {key: link(at, question=places[at]) for key, at in beside.items() if 0 <= at < len(places)}
    return row | {"links": links, "closed": link(here)}


@require_safe
def evaluations_csv(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse | StreamingHttpResponse:
    """The questions that the tab lists under the same address, all pages of them."""
    run = run_or_404(request, run_id)
    benchmarks = evaluation_summary(run)

    def rows() -> Iterator[list[Any]]:
        if not benchmarks:
            yield ["question"]
            return
        choice = _choice(request.user, EvaluationsQuery.read(request.GET), run, benchmarks)
        pair = sheets.read_pair(choice.benchmark.name, choice.before, choice.after)
        steps = (
            f"step {choice.before.step}{' of the other run' if choice.against else ''}",
            f"step {choice.after.step}",
        )
        heads = [
            f"{name}, {step}, {column}"
            for _, name, _ in pair.agents
            for step in steps
            for column in ("right", "scored", "most frequent answer")
        ]
        yield ["question", "subject", "difficulty", "reference", *heads]
        for place in sheets.matching_places(pair, choice.query)[0]:
            row = _row(pair, place, {}, choice.query)
            cells = [row["id"], row["subject"], row["difficulty"], row["answer"]]
            for mark in row["marks"]:
                for one in (mark["before"], mark["after"]):
                    cells += [one.num_correct, one.num_scored, one.majority]
            yield cells

    return download_csv(request, rows(), f"evaluation-{run.pk}.csv")


@require_safe
def harness_csv(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """A row for each metric that lm-evaluation-harness measured, on the run's Evaluations tab."""
    run = run_or_404(request, run_id)
    return download_csv(request, rows_for_csv(lines_of_run(run, request.user)), f"lm-eval-{run.pk}.csv")


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def evaluate(request: HttpRequest) -> HttpResponse:
    """The form of a new evaluation, filled in from the address; or queue what it sends."""
    if request.method != "POST":
        return _show(request, _first_values(request))
    fields: dict[str, Any] = {
        key: request.POST[key].strip() for key in KEYS if key in request.POST and key not in LISTS
    }
    fields |= {key: request.POST.getlist(key) for key in LISTS}
    return queue_or_show(request, fields, launch_evaluation, _show)


def queue_or_show(
    request: HttpRequest,
    fields: dict[str, Any],
    launch: Callable[[Any, dict[str, Any]], Run],
    show: Callable[..., HttpResponse],
) -> HttpResponse:
    """Queue what a form of an evaluation sends, or show it again with the errors."""
    try:
        if any("\x00" in value for value in fields.values() if isinstance(value, str)):
            raise FieldErrors.single("invalid_text", "A text holds a NUL character.")
        run = launch(request.user, fields)
    except FieldErrors as error:
        return show(request, fields, error.errors, error.status)
    messages.success(request, f"{run.name} queued.")
    return redirect(run)


class NewEvaluationQuery(PageQuery):
    """What the form opens with: ids of models, a group, or a run and the step of its checkpoint; ids of benchmarks."""

    models: tuple[Text, ...] = ()
    group: Text = ""
    run: Text = ""
    step: Text = ""
    benchmarks: tuple[Text, ...] = ()


def _first_values(request: HttpRequest) -> dict[str, Any]:
    values: dict[str, Any] = DEFAULTS | NewEvaluationQuery.read(request.GET).model_dump()
    run = find_run(request.user, values["run"])
    if run is not None:
        values["max_completion_length"] = run.spec.get("rollout", {}).get("max_completion_length")
        values["benchmarks"] = values["benchmarks"] or [str(run.benchmark_id or "")]
    return values


def _show(
    request: HttpRequest, values: dict[str, Any], errors: list[FieldError] | None = None, status: int = 200
) -> HttpResponse:
    rows = [(*row, "") for row in NUMBERS]
    context = form_context(request, values, errors or [], rows, (*LISTS, "name"))
    return render(request, "insight/evaluations/new_evaluation.html", context, status=status)


def form_context(
    request: HttpRequest,
    values: dict[str, Any],
    errors: Sequence[FieldError],
    rows: Sequence[tuple[str, str, str, str, Any]],
    fields: Sequence[str],
) -> dict[str, Any]:
    """What both forms of an evaluation show. fields: that have a place for their errors, beside the numbers.

    rows: name, label, help, unit and default of each number.
    """
    by_field: dict[str, list[str]] = {}
    for error in errors:
        by_field.setdefault(error.field or "", []).append(error.message)
    numbers = [
        {"name": name, "label": label, "help": help_text, "unit": unit, "errors": by_field.get(name, [])}
        | {"value": default if values.get(name) is None else values[name]}
        for name, label, help_text, unit, default in rows
    ]
    group = visible_row(AgentGroup, request.user, values.get("group"))
    run = find_run(request.user, values.get("run"))
    models, benchmarks = choices_of(request.user, values, group or run)
    places = {*fields, *(one["name"] for one in numbers)}
    return {
        "values": values,
        "models": [{"model": one, "is_checked": str(one.pk) in values["models"]} for one in models],
        "benchmarks": [{"benchmark": one, "is_checked": str(one.pk) in values["benchmarks"]} for one in benchmarks],
        "group": group,
        "run": run,
        "numbers": numbers,
        "errors_of": {name: by_field.get(name, []) for name in fields},
        "other_errors": [text for name, texts in by_field.items() if name not in places for text in texts],
        "num_errors": sum(map(len, by_field.values())),
        "most": MAX_AGENTS,
        "query": request.GET.urlencode(),
    }


def choices_of(user: User, values: dict[str, Any], origin: Any) -> tuple[Any, Any]:
    """Models and benchmarks of one project: of the object that the form was opened with, else the current one."""
    for kind, key in ((LanguageModel, "models"), (Benchmark, "benchmarks")):
        origin = origin or visible_row(kind, user, next(iter(values[key]), None))
    models, benchmarks = LanguageModel.objects.listed_for(user), Benchmark.objects.listed_for(user)
    if origin is not None:
        models = LanguageModel.objects.visible_to(user).filter(project=origin.project_id)
        benchmarks = Benchmark.objects.visible_to(user).filter(project=origin.project_id)
    return models[:MAX_CHOICES], benchmarks[:MAX_CHOICES]
