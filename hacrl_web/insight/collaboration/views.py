"""The Collaboration tab of a run."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.alerts.rules import BY_KIND
from hacrl_web.alerts.signals import Facts
from hacrl_web.insight.collaboration.step_summary import recorded_steps
from hacrl_web.runs.models import Run
from hacrl_web.runs.pages.runs import header, run_or_404
from hacrl_web.runs.stored_spec import stored_spec
from workers.contract.spec.run import RunSpec


@require_GET
def run_collaboration(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The page; its script loads the step of the address from the API."""
    run = run_or_404(request, run_id)
    spec = stored_spec(run)
    steps = list(recorded_steps(run))
    shares = spec.algorithm.shares_rollouts and len(spec.agents) > 1
    context = header(run) | {
        "tab": "collaboration",
        "has_steps": bool(steps),
        "shares": shares,
        "has_omega": Facts.of(spec).uses_omega,
        "rule": spec.rule,
        "is_recorded": spec.telemetry.rollout_interval > 0,
        "page_data": _page_data(run, spec, steps, shares),
    }
    return render(request, "insight/collaboration/collaboration.html", context)


def _page_data(run: Run, spec: RunSpec, steps: list[int], shares: bool) -> dict[str, Any]:
    rule = spec.rule
    return {
        "agents": run.agent_names,
        "shares": shares,
        "has_omega": Facts.of(spec).uses_omega,
        "modulates": rule.modulate_gradient,
        "ratio_min": rule.ratio_min,
        "ratio_max": rule.ratio_max,
        "warmup": rule.ratio_warmup_steps,
        "clip_gradient": rule.cross_clip_gradient if rule.name == "hacpo" else "naive",
        "trap_at": BY_KIND["cross_clip"].raise_at,
        "steps": steps,
        "ended": run.is_terminal,
        "attempt": run.attempt,
    }
