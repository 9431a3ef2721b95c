"""The What-if tab of a run: a page with sliders, filled by what `what_if_answer` computes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET
from pydantic import ValidationError

from hacrl_web.errors import FieldError, FieldErrors, plain_errors
from hacrl_web.insight.recorded import end, step_before
from hacrl_web.insight.what_if import KNOBS, Check, Pairs, check, hypothetical, recorded, with_knobs
from hacrl_web.insight.what_if_rows import MAX_STEPS, MAX_WINDOW, Rows, read
from hacrl_web.runs.models import Run
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.runs.views import header, run_or_404
from workers.spec import RunSpec
from workers.spec_algorithm import AlgorithmSpec

FIRST_SHOWN_STEPS = 10


class Knob(NamedTuple):
    """A slider: where it ends and its grain. The number beside it takes all that RunSpec allows."""

    name: str
    label: str
    low: float
    high: float
    grain: float


SLIDERS = (
    Knob("alpha", "alpha", 0, 5, 0.05),
    Knob("delta", "delta", 0, 1, 0.01),
    Knob("delta_step", "delta_step", 0, 0.2, 0.005),
    Knob("capability_window", "capability_window (K)", 1, 20, 1),
    Knob("ratio_min", "ratio_min", 0.01, 1, 0.01),
    Knob("ratio_max", "ratio_max", 1, 20, 0.1),
)
MODES = ("zero", "keep", "sided")


def answers(spec: RunSpec) -> str:
    """Why this run has nothing to turn; empty where it has."""
    rule = spec.algorithm
    if rule.name != "hacpo":
        return f"This run follows {rule.name}, whose weights have no alpha, delta, window or clamp."
    if not rule.sharing or len(spec.agents) == 1:
        return "No rollout was shared in this run: every weight is that of an own rollout, on which none of these acts."
    return ""


@require_GET
def run_what_if(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The sliders at the run's own values; the page asks the API for what they would have done."""
    run = run_or_404(request, run_id)
    spec = stored_spec(run)
    ends = {"first": end(run.contributions.all(), "step"), "last": end(run.contributions.all(), "-step")}
    first = last = ends["last"]
    for _ in range(FIRST_SHOWN_STEPS - 1 if last is not None else 0):
        before = step_before(run.contributions.all(), first)
        if before is None:
            break
        first = before
    schema = AlgorithmSpec.model_json_schema()["properties"]
    context = header(run) | {
        "tab": "what-if",
        "nothing": answers(spec),
        "ends": ends,
        "sliders": [_slider(knob, spec, schema[knob.name]) for knob in SLIDERS],
        "modes": [{"value": mode, "is_recorded": mode == spec.algorithm.cross_clip_gradient} for mode in MODES],
        "mode_help": schema["cross_clip_gradient"]["description"],
        "max_steps": MAX_STEPS,
        "page_data": {
            "url": reverse("api-1:what_if", args=[run.pk]),
            "clone": reverse("runs:run_clone", args=[run.pk]),
            "rollouts": reverse("insight:run_rollouts", args=[run.pk]),
            "agents": run.agent_names,
            "recorded": {name: getattr(spec.algorithm, name) for name in KNOBS},
            "first": first,
            "last": last,
            "lowest": ends["first"],
            "highest": ends["last"],
        },
    }
    return render(request, "insight/what_if.html", context)


def _slider(knob: Knob, spec: RunSpec, schema: Mapping[str, Any]) -> dict[str, Any]:
    value = getattr(spec.algorithm, knob.name)
    return {
        "name": knob.name,
        "label": knob.label,
        "help": schema["description"],
        "value": value,
        "low": min(knob.low, value),
        "high": max(knob.high, value),
        "grain": knob.grain,
        "least": schema.get("minimum", 1e-6),
        "most": MAX_WINDOW if knob.name == "capability_window" else schema.get("maximum", ""),
    }


def what_if_answer(
    run: Run, first: int, last: int, knobs: Mapping[str, Any], *, checks: bool = False
) -> dict[str, Any]:
    """Recorded and hypothetical numbers of every ordered pair. checks: also how well they are given back.

    Error: FieldErrors.
    """
    began = time.perf_counter()
    spec = stored_spec(run)
    nothing = answers(spec)
    if nothing:
        return {"nothing": nothing, "pairs": [], "steps": 0}
    if last < first:
        raise FieldErrors([FieldError("invalid", "The last step must not be before the first.", "last")])
    try:
        other = with_knobs(spec, knobs)
    except ValidationError as error:
        raise FieldErrors(plain_errors(error)) from error
    rows = read(run, first, last)
    before, after = recorded(rows, spec.rule), hypothetical(rows, spec.rule, other.rule)
    return {
        "nothing": "",
        "agents": run.agent_names,
        "first": rows.steps[0] if rows.steps else None,
        "last": rows.steps[-1] if rows.steps else None,
        "steps": len(rows.steps),
        "is_thinned": rows.is_thinned,
        "rows": rows.num_rows,
        "pairs": _told(before, after),
        "bounds": [_bounds(one) for one in (spec, other)],
        "cautions": [caution.message for caution in other.cautions() if caution not in spec.cautions()],
        "check": _check(rows, spec.rule)._asdict() if rows.steps and checks else None,
        "clone": clone_query(spec, other),
        "elapsed_ms": round(1000 * (time.perf_counter() - began), 1),
    }


def _check(rows: Rows, rule: AlgorithmSpec) -> Check:
    """Once for rows in memory."""
    if rows.checked is None:
        rows.checked = check(rows, rule)
    found: Check = rows.checked
    return found


def _told(before: Pairs, after: Pairs) -> list[dict[str, Any]]:
    totals = [
        {learner: sum(pair.weight for (k, _), pair in pairs.items() if k == learner) for learner, _ in pairs}
        for pairs in (before, after)
    ]
    return [
        {
            "learner": place[0],
            "source": place[1],
            **{
                name: pairs[place].as_dict() | {"share": pairs[place].weight / of[place[0]] if of[place[0]] else None}
                for name, pairs, of in (("recorded", before, totals[0]), ("hypothetical", after, totals[1]))
            },
        }
        for place in before
    ]


def _bounds(spec: RunSpec) -> dict[str, float]:
    """The cross band's lower bound at a step's first and last cross update, Eq. (14)."""
    rule = spec.rule
    first = spec.updates_per_block  # own mini-batches come before
    return {
        "first": min(1.0, 1.0 - rule.delta + first * rule.delta_step),
        "last": spec.last_lower_bound,
        "delta_step": rule.delta_step,
    }


def clone_query(spec: RunSpec, other: RunSpec) -> str:
    """What the clone form is opened with: the settings that differ."""
    changed = {
        f"algorithm.{name}": getattr(other.algorithm, name)
        for name in KNOBS
        if getattr(other.algorithm, name) != getattr(spec.algorithm, name)
    }
    return urlencode(changed)
