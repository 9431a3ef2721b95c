"""The What-if tab of a run: a page with sliders, whose script loads the numbers from the API."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from hacrl_web.insight.recorded_steps import end
from hacrl_web.insight.what_if.rows import MAX_WINDOW
from hacrl_web.insight.what_if.what_if import why_nothing
from hacrl_web.runs.run.header import header, run_or_404
from hacrl_web.runs.storage.stored_spec import recorded_spec
from workers.contract.settings import label_of
from workers.contract.spec.run import RunSpec

WINDOW_STEPS = 10


@require_GET
def run_what_if(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    run = run_or_404(request, run_id)
    spec = recorded_spec(run)
    rows, interval = run.contributions.all(), spec.telemetry.rollout_interval
    ends = {"first": end(rows, "step"), "last": end(rows, "-step")}
    schema = type(spec.algorithm).model_json_schema()["properties"]
    hypothetical = spec.algorithm.hypothetical_settings()
    context = header(run) | {
        "tab": "what-if",
        "nothing": why_nothing(spec),
        "ends": ends,
        "windows": _windows(rows, ends["first"], ends["last"], interval) if ends["last"] is not None else [],
        "sliders": [_slider(name, spec, schema[name]) for name in hypothetical if "slider" in schema[name]],
        "choices": [_choice(name, spec, schema[name]) for name in hypothetical if "enum" in schema[name]],
        "page_data": {
            "url": reverse("api-1:what_if", args=[run.pk]),
            "clone": reverse("runs:run_clone", args=[run.pk]),
            "agents": run.agent_names,
            "recorded": {name: getattr(spec.algorithm, name) for name in hypothetical},
            **ends,  # all steps: the last ones alone are least like the start of a run with other values
        },
    }
    return render(request, "insight/what_if/what_if.html", context)


def _windows(rows: QuerySet[Any], first: int, last: int, interval: int) -> list[dict[str, Any]]:
    """Ranges of steps to choose from: all that are recorded, the first ones and the last ones.

    interval: steps from one recorded step to the next.
    """
    width = (WINDOW_STEPS - 1) * interval
    early, late = end(rows.filter(step__lte=first + width), "-step"), end(rows.filter(step__gte=last - width), "step")
    windows = [{"label": "all", "first": first, "last": last}]
    if early < last:
        windows.append({"label": f"first {WINDOW_STEPS}", "first": first, "last": early})
        windows.append({"label": f"last {WINDOW_STEPS}", "first": late, "last": last})
    return windows


def _slider(name: str, spec: RunSpec, schema: Mapping[str, Any]) -> dict[str, Any]:
    value, (low, high, grain) = getattr(spec.algorithm, name), schema["slider"]
    return {
        "name": name,
        "label": label_of(name, schema),
        "help": schema["description"],
        "value": value,
        "low": min(low, value),
        "high": max(high, value),
        "grain": grain,
        "least": schema.get("minimum", 1e-6),
        "most": MAX_WINDOW if name == "capability_window" else schema.get("maximum", ""),
    }


def _choice(name: str, spec: RunSpec, schema: Mapping[str, Any]) -> dict[str, Any]:
    value = getattr(spec.algorithm, name)
    values = [{"value": one, "is_recorded": one == value} for one in schema["enum"]]
    return {"name": name, "label": label_of(name, schema), "help": schema["description"], "values": values}
