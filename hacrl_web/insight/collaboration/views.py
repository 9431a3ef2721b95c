"""The Collaboration tab of a run."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.insight.collaboration.collaboration import TRAP_AT, peers_share, sentences, view
from hacrl_web.insight.collaboration.step_summary import recorded_steps, summary_of
from hacrl_web.runs.run.header import header, run_or_404
from hacrl_web.runs.storage.stored_spec import recorded_spec
from hacrl_web.runs.telemetry.metric_series import read_series


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


@require_GET
def run_lesson(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The newest recorded step of a run for Home: each agent's reward, who its update comes from, and a sentence."""
    run = run_or_404(request, run_id)
    spec, steps = recorded_spec(run), recorded_steps(run)
    if not steps:
        return HttpResponse()
    step = max(steps)
    summary = summary_of(run, steps, step)
    picture = view(spec, summary, step)
    series = read_series(run, {"reward/mean"}, first=step, last=step)
    rewards = {line.agent: value for line in series for _, value in line.points()}
    agents = []
    for place, name in enumerate(run.agent_names):
        weights = [(pair["source"], sum(pair["weight"])) for pair in picture["pairs"] if pair["learner"] == place]
        total = sum(weight for _, weight in weights)
        ribbon, start = [], 0.0
        for source, weight in weights if total else ():
            ribbon.append({"source": source, "start": round(start, 2), "width": round(100 * weight / total, 2)})
            start += 100 * weight / total
        shown = {"name": name, "place": place, "reward": rewards.get(name), "ribbon": ribbon}
        agents.append(shown | {"peers": peers_share(summary, name)})
    lessons = sentences(spec, picture)
    lesson = next((one for kind in ("trap", "prompts", "teach") for one in lessons if one["kind"] == kind), None)
    context = {"run": run, "step": step, "agents": agents, "lesson": lesson}
    return render(request, "insight/collaboration/_lesson.html", context)
