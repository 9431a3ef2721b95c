"""The Config tab of a run: its settings, beside those of another run, and as files. Views parse, call and render."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.insight import settings_diff
from hacrl_web.insight.checkpoints.checkpoints import agent_slug
from hacrl_web.insight.spec_files import as_verl_yaml, as_yaml, verl_refusal
from hacrl_web.runs.models import Run
from hacrl_web.runs.pages.runs import header, run_or_404
from hacrl_web.web.streaming import download_text

YAML = "application/yaml"
NOBODY = "none"  # ?against=none: no other run, though the sweep has a baseline


@require_GET
def run_config(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """`against` names the other run (default: its origin, or the sweep's baseline), `only=1` hides what is equal.

    `q` looks for runs. A foreign or unknown run in `against` is 404.
    """
    run = run_or_404(request, run_id)
    search = request.GET.get("q", "").replace("\x00", "")[:200].strip()
    against = request.GET.get("against", "")
    other = _other(request, run, against)
    only = request.GET.get("only") == "1" and other is not None
    specs = [settings_diff.effective(one) for one in (run, other) if one is not None]
    sections = settings_diff.sections(settings_diff.diff_lines(specs))
    parameters = {"against": against} if against else {}
    context: dict[str, Any] = header(run) | {
        "tab": "config",
        "other": other,
        "is_default": other is not None and not against,
        "only": only,
        "search": search,
        "found": settings_diff.runs_matching(request.user, search, run.pk) if search else [],
        "sections": [section for section in sections if section.num_different] if only else sections,
        "num_settings": sum(len(section.lines) for section in sections),
        "num_different": sum(section.num_different for section in sections),
        "kept": parameters,
        "all_query": urlencode(parameters),
        "only_query": urlencode(parameters | {"only": "1"}),
        "verl_refusal": verl_refusal(run),
        "spec_json": json.dumps(run.spec, indent=2, ensure_ascii=False),
    }
    return render(request, "insight/run_config.html", context)


@require_GET
def run_yaml(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The settings as a file that `python -m workers` trains."""
    run = run_or_404(request, run_id)
    return download_text(as_yaml(run), f"{agent_slug(run.name)}.yaml", YAML)


@require_GET
def run_verl_yaml(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The settings for verl's HACPO recipe; 409 with the reason where it would train something else."""
    run = run_or_404(request, run_id)
    return download_text(as_verl_yaml(run), f"{agent_slug(run.name)}-verl.yaml", YAML)


def _other(request: HttpRequest, run: Run, text: str) -> Run | None:
    if text == NOBODY:
        return None
    if not text:
        return settings_diff.origin_of_run(run, request.user) or settings_diff.cloned_baseline(run, request.user)
    try:
        return run_or_404(request, uuid.UUID(text))
    except ValueError:
        raise Http404 from None
