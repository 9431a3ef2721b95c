"""The Config, Events and System tabs of a run, and its settings as files. Views parse, call and render."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET
from pydantic import Field

from hacrl_web.insight import settings_diff
from hacrl_web.insight.checkpoints.checkpoints import agent_slug
from hacrl_web.insight.run_tabs import event_list, system
from hacrl_web.runs.models import Host, Run
from hacrl_web.runs.run.cautions import confirmed_codes
from hacrl_web.runs.run.header import header, run_or_404
from hacrl_web.runs.storage.stored_spec import stored_spec
from hacrl_web.web.page_query import PageQuery, Text, encode_query
from hacrl_web.web.streaming import download_text
from workers.contract.spec.algorithm import left_settings
from workers.contract.spec.run import dump_yaml

YAML = "application/yaml"
ROWS_SHOWN = 40


class ConfigQuery(PageQuery):
    """against: the other run; without it the run's origin, or the sweep's baseline.  only: "1" hides equal settings,
    "default" those that have their defaults, "all" none; without it "1" beside another run, else "default".

    q: text to search other runs by.
    """

    q: Text = ""
    against: Literal["", "none"] | UUID = ""
    only: Literal["", "1", "default", "all"] = ""


class EventsQuery(PageQuery):
    """kind: kinds of events, all without it.  before: seconds since 1970, where a page begins."""

    kind: tuple[Text, ...] = ()
    before: Annotated[float, Field(gt=0, lt=event_list.YEAR_10000)] | None = None


@require_GET
def run_config(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """A foreign or unknown run in `against` is 404."""
    run, query = run_or_404(request, run_id), ConfigQuery.read(request.GET)
    if "against" in query.ignored:
        raise Http404
    other = _other_run(request, run, query)
    only = query.only or "1"
    if only == "1" and other is None:
        only = "default"
    specs = settings_diff.as_trained([one for one in (run, other) if one is not None])
    lines = settings_diff.diff_lines(specs)
    changed = settings_diff.non_default_paths(run)
    sections = settings_diff.sections(lines)
    lines_by_filter = {
        "all": lines,
        "1": [line for line in lines if line.differs],
        "default": [line for line in lines if line.path in changed],
    }
    context: dict[str, Any] = header(run) | {
        "tab": "config",
        "other": other,
        "is_default": other is not None and not query.against,
        "only": only,
        "search": query.q,
        "matches": settings_diff.runs_matching(request.user, query.q, run.pk) if query.q else [],
        "sections": settings_diff.sections(lines_by_filter[only]) if lines_by_filter[only] else [],
        "num_settings": sum(len(section.lines) for section in sections),
        "num_different": sum(section.num_different for section in sections),
        "against": query.against,
        "all_query": encode_query({"against": query.against, "only": "all"}),
        "only_query": encode_query({"against": query.against, "only": "1"}),
        "default_query": encode_query({"against": query.against, "only": "default"}),
        "num_changed": len(lines_by_filter["default"]),
        "spec_json": json.dumps(run.spec, indent=2, ensure_ascii=False),
    }
    return render(request, "insight/run_tabs/config.html", context)


def _other_run(request: HttpRequest, run: Run, query: ConfigQuery) -> Run | None:
    if isinstance(query.against, UUID):
        return run_or_404(request, query.against)
    if query.against == "none":
        return None
    return settings_diff.origin_of_run(run, request.user) or settings_diff.cloned_baseline(run, request.user)


@require_GET
def run_yaml(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """The settings as a file that `python -m workers` trains."""
    run = run_or_404(request, run_id)
    return download_text(as_yaml(run), f"{agent_slug(run.name)}.yaml", YAML)


@require_GET
def run_events(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """One list by time, filtered by kind; a part of it for htmx."""
    run, query = run_or_404(request, run_id), EventsQuery.read(request.GET)
    kinds = [kind for kind in event_list.KINDS if kind in query.kind]
    entries, following = event_list.event_page(run, kinds or event_list.KINDS, query.before)
    context: dict[str, Any] = header(run) | {
        "tab": "events",
        "entries": entries,
        "kinds": [
            {
                "label": label,
                "is_on": kind in kinds,
                "query": encode_query({"kind": [one for one in event_list.KINDS if (one in kinds) != (one == kind)]}),
            }
            for kind, label in event_list.KINDS.items()
        ],
        "is_all": not kinds,
        "before": query.before,
        "query": encode_query({"kind": kinds}),
        "next_query": encode_query({"kind": kinds, "before": following}) if following is not None else "",
        "places": {name: place for place, name in enumerate(run.agent_names)},
        "is_live": query.before is None and not run.is_terminal,
    }
    template = "_event_rows" if getattr(request, "htmx", False) else "events"
    return render(request, f"insight/run_tabs/{template}.html", context)


@require_GET
def run_system(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """Pictures over all steps, and a table of at most ROWS_SHOWN rows behind them."""
    run = run_or_404(request, run_id)
    steps, breaks = system.timed_steps(run)
    context: dict[str, Any] = header(run) | {
        "tab": "system",
        "figures": system.figures(system.buckets(steps), breaks) if steps else {},
        "rows": system.buckets(steps, ROWS_SHOWN),
        "total": next(iter(system.buckets(steps, 1)), None),
        "phase_names": system.PHASES,
        "breaks": breaks,
        "attempts": system.attempts(run),
        "host": Host.objects.filter(name=run.worker_host).first() if run.worker_host else None,
    }
    return render(request, "insight/run_tabs/system.html", context)


def as_yaml(run: Run) -> str:
    """The run's settings as YAML, with the cautions that it confirmed; as stored, if some left.

    Error: FieldErrors (409) for those of another version.
    """
    if left_settings(run.spec):
        return dump_yaml(run.spec)
    spec = stored_spec(run)
    return spec.to_yaml(confirmed_codes(run, spec))
