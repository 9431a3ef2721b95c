"""The Collaboration tab of a run."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.insight.collaboration.collaboration import TRAP_AT
from hacrl_web.insight.collaboration.step_summary import recorded_steps
from hacrl_web.runs.run.header import header, run_or_404
from hacrl_web.runs.storage.stored_spec import recorded_spec


@require_GET
def run_collaboration(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The page; its script loads the step of the address from the API."""
    run = run_or_404(request, run_id)
    spec = recorded_spec(run)
    rule = spec.rule
    steps = list(recorded_steps(run))
    shares = spec.algorithm.shares_rollouts and len(spec.agents) > 1
    context = header(run) | {
        "tab": "collaboration",
        "has_steps": bool(steps),
        "shares": shares,
        "has_partial_credit": spec.has_partial_credit,
        "has_omega": shares and spec.algorithm.uses_omega,
        "rule": rule,
        "is_recorded": spec.telemetry.rollout_interval > 0,
        "page_data": {
            "agents": run.agent_names,
            "shares": shares,
            "ratio_min": rule.capability_options.ratio_min,
            "ratio_max": rule.capability_options.ratio_max,
            "warmup": rule.capability_options.warmup_steps,
            "can_trap": rule.drops_outside_band,
            "trap_at": TRAP_AT,
            "steps": steps,
            "ended": run.is_terminal,
            "attempt": run.attempt,
        },
    }
    return render(request, "insight/collaboration/collaboration.html", context)
