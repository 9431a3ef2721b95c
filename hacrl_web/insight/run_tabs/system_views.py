"""The System tab: time by phase, rates, memory, and the attempts with their hosts and devices."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.insight.run_tabs import system
from hacrl_web.insight.run_tabs.system_figures import figures
from hacrl_web.runs.models import Host
from hacrl_web.runs.pages.runs import header, run_or_404

ROWS_SHOWN = 40


@require_GET
def run_system(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Pictures over all steps, and behind them a table of at most ROWS_SHOWN rows."""
    run = run_or_404(request, run_id)
    steps = system.steps(run)
    breaks = system.interruptions(steps)
    total = system.buckets(steps, 1)
    context: dict[str, Any] = header(run) | {
        "tab": "system",
        "figures": figures(system.buckets(steps), breaks) if steps else {},
        "rows": system.buckets(steps, ROWS_SHOWN),
        "total": total[0] if total else None,
        "phase_names": system.PHASES,
        "breaks": breaks,
        "attempts": system.attempts(run),
        "host": Host.objects.filter(name=run.worker_host).first() if run.worker_host else None,
    }
    return render(request, "insight/run_system.html", context)
