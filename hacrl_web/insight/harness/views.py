"""Evaluations by lm-evaluation-harness: the form that starts one.

One is a run without training steps whose settings name tasks. Whether there are such tasks, the harness says when the
run begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from hacrl_web.accounts.models import User
from hacrl_web.accounts.roles.projects import for_members
from hacrl_web.insight.evaluations.new_evaluation import SelectedAgents, evaluation_spec, queue_request
from hacrl_web.insight.evaluations.views import NewEvaluationQuery, form_context, queue_or_show
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.page_query import Text
from workers.contract.spec.harness import HARNESS, HarnessSpec
from workers.contract.spec.run import RunSpec

LISTS = ("models", "tasks")
SETTINGS = ("num_fewshot", "limit", "batch_size", "prompt_format", "time_limit_s")
KEYS = ("name", "seed", *LISTS, "group", "run", "step", *SETTINGS)


def launch_harness_evaluation(user: User, request: Any) -> Run:
    """Queue an evaluation by the harness. Error: FieldErrors, and nothing is written."""
    return queue_request(user, request, KEYS, _spec)


def tasks_of(request: Mapping[str, Any], errors: list[FieldError]) -> list[Any]:
    """The names of a list, or of a text with commas, spaces or line ends between them."""
    tasks = request.get("tasks") or []
    if isinstance(tasks, str):
        tasks = re.split(r"[\s,;]+", tasks.strip())
    if not isinstance(tasks, list | tuple):
        errors.append(FieldError("invalid", "Give a list of tasks.", "tasks"))
        return []
    names = list({str(task): task for task in tasks if task != ""}.values())
    if not names:
        errors.append(FieldError("missing", "Name a task of the harness.", "tasks"))
    return names


def _spec(
    user: User, request: Mapping[str, Any], selection: SelectedAgents, errors: list[FieldError]
) -> tuple[RunSpec | None, tuple[()]]:
    """The checked spec, of no benchmarks; problems are added to `errors`."""
    harness = {key: request[key] for key in SETTINGS if request.get(key) not in (None, "")}
    harness["tasks"] = tasks_of(request, errors)
    if selection.trained is not None and selection.manifest is not None:
        harness |= {"source_run": str(selection.trained.pk), "source_step": selection.manifest.step}
    sections = {"data": {"benchmark": HARNESS, "train_path": "-"}, "harness": harness}
    return evaluation_spec(f"{HARNESS}:", request, selection, sections, errors, _field), ()


def _field(path: str | None) -> str | None:
    """The field of the request that an error of the spec belongs to."""
    section, _, rest = (path or "").partition(".")
    if section == "harness":
        return rest.partition(".")[0] or None
    return "models" if section == "agents" else path


HOURS = "time_limit_h"  # of the form; the setting is in seconds
HOUR_S = 3600
MAX_HOURS = 720  # as many as HarnessSpec allows
FORMATS = {"agent": "as the agent's", "chat": "chat template", "plain": "bare prompt"}
# Name, label, help, unit, default.
OTHER = (
    (HOURS, "Time limit", "Of the evaluation of one model.", "hours", HarnessSpec().time_limit_s // HOUR_S),
    ("seed", "Seed", "Of the random choice of examples; empty: 0.", "", ""),
)


class NewHarnessQuery(NewEvaluationQuery):
    """What the form opens with."""

    tasks: Text = ""


@for_members
@require_http_methods(["GET", "HEAD", "POST"])
def evaluate_by_harness(request: HttpRequest) -> HttpResponse:
    """The form, filled in from the address; or queue what it sends."""
    if request.method != "POST":
        return _show(request, NewHarnessQuery.read(request.GET).model_dump())
    fields: dict[str, Any] = {
        key: request.POST[key].strip() for key in KEYS if key in request.POST and key not in LISTS
    }
    fields |= {"tasks": request.POST.get("tasks", ""), "models": request.POST.getlist("models")}
    fields[HOURS] = request.POST.get(HOURS, "").strip()
    return queue_or_show(request, fields, _launch, _show)


def _launch(user: User, fields: dict[str, Any]) -> Run:
    """Error: FieldErrors."""
    settings = {key: value for key, value in fields.items() if key != HOURS}
    return launch_harness_evaluation(user, settings | {"time_limit_s": _seconds(fields[HOURS])})


def _seconds(hours: str) -> int | str:
    """The seconds that a form sends; empty is the default. Error: FieldErrors."""
    if not hours:
        return ""
    try:
        seconds = round(float(hours) * HOUR_S)
        if not 1 <= seconds <= MAX_HOURS * HOUR_S:
            raise ValueError(hours)
    except (ValueError, OverflowError):
        message = f"Must be a number of hours above 0 and at most {MAX_HOURS}."
        raise FieldErrors.single("invalid", message, HOURS) from None
    return seconds


def _numbers() -> list[tuple[str, str, str, str, Any]]:
    """The fields of numbers, those of HarnessSpec with its words and defaults."""
    rows: list[tuple[str, str, str, str, Any]] = []
    for name in ("num_fewshot", "limit", "batch_size"):
        field = HarnessSpec.model_fields[name]
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        label = str(extra.get("label") or name.replace("_", " ").capitalize())
        default = "" if field.default is None else field.default
        rows.append((name, label, field.description or "", str(extra.get("unit") or ""), default))
    return [*rows, *OTHER]


def _show(
    request: HttpRequest, values: dict[str, Any], errors: list[FieldError] | None = None, status: int = 200
) -> HttpResponse:
    fields = (*LISTS, "name", "prompt_format")
    context = form_context(request, {"benchmarks": []} | values, errors or [], _numbers(), fields)
    context |= {"formats": FORMATS, "format": values.get("prompt_format") or "agent"}
    return render(request, "harness/new_evaluation.html", context, status=status)
