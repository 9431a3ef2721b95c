"""The API of the Config, Events and System tabs, and of a run's settings as files."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from typing_extensions import TypedDict

from hacrl_web.insight import settings_diff
from hacrl_web.insight.run_tabs import event_list, system
from hacrl_web.insight.run_tabs.timeline_entry import TimelineEntry
from hacrl_web.insight.run_tabs.views import as_yaml
from hacrl_web.runs.models.requests import visible_run

YAML = "application/yaml; charset=utf-8"
Moment = Annotated[float | None, Query(gt=0, lt=event_list.YEAR_10000, allow_inf_nan=False)]
Kinds = Annotated[list[event_list.Kind], Query()]
NO_KINDS: list[event_list.Kind] = []
router = Router(tags=["insight"])


class TimelineAnswer(TypedDict):
    """`next` goes into `before`."""

    items: list[TimelineEntry]
    next: float | None


class ConfigAnswer(TypedDict):
    runs: list[str]
    lines: list[settings_diff.SettingAnswer]


class SystemAnswer(TypedDict):
    buckets: list[system.TimeBucket]
    attempts: list[system.Attempt]


@router.get("/runs/{run_id}/timeline", response=TimelineAnswer, summary="All that happened to a run, newest first")
def get_timeline(request: HttpRequest, run_id: UUID, kind: Kinds = NO_KINDS, before: Moment = None) -> Any:
    """States, starts and ends, evaluations, checkpoints, incidents, alerts. `next` goes into `before`."""
    kinds = dict.fromkeys(kind) or event_list.KINDS
    entries, following = event_list.event_page(visible_run(request, run_id), kinds, before)
    return {"items": entries, "next": following}


@router.get("/runs/{run_id}/config", response=ConfigAnswer, summary="A run's settings, beside those of another run")
def get_config(request: HttpRequest, run_id: UUID, against: UUID | None = None, only_different: bool = False) -> Any:
    """The settings by dotted path with their values in this run and in `against`. `is_there`: whether a run has one."""
    runs = [visible_run(request, run_id), *([visible_run(request, against)] if against else [])]
    lines = settings_diff.diff_lines(settings_diff.as_trained(runs))
    return {"runs": [str(run.pk) for run in runs], "lines": settings_diff.as_rows(lines, only_different=only_different)}


@router.get("/runs/{run_id}/config.yaml", summary="The settings of a run as YAML, to train from by `python -m workers`")
def get_yaml(request: HttpRequest, run_id: UUID) -> HttpResponse:
    return HttpResponse(as_yaml(visible_run(request, run_id)), content_type=YAML)


@router.get("/runs/{run_id}/system", response=SystemAnswer, summary="Where a run spent its time and memory")
def get_system(
    request: HttpRequest, run_id: UUID, buckets: Annotated[int, Query(ge=1, le=system.BUCKETS)] = system.BUCKETS
) -> Any:
    """Buckets of consecutive steps: seconds by phase, tokens, rollouts, the highest memory; and the attempts."""
    run = visible_run(request, run_id)
    return {"buckets": system.buckets(system.timed_steps(run)[0], buckets), "attempts": system.attempts(run)}
