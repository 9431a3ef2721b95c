"""The REST API's part for the Config, Events and System tabs, and for the table of a comparison."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router

from hacrl_web.insight import settings_diff
from hacrl_web.insight.compare import comparison
from hacrl_web.insight.compare.api import CompareQuery
from hacrl_web.insight.compare.views import choice
from hacrl_web.insight.run_tabs import event_list, system
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldError, FieldErrors

Kind = Literal["state", "trainer", "evaluation", "checkpoint", "incident", "alert", "left_out"]
YEAR_10000 = 253_402_300_800
Moment = Annotated[float | None, Query(gt=0, lt=YEAR_10000, allow_inf_nan=False)]
Kinds = Annotated[list[Kind], Query()]
NO_KINDS: list[Kind] = []
router = Router(tags=["insight"])


def _run(request: HttpRequest, run_id: UUID) -> Run:
    return get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)


@router.get("/runs/{run_id}/timeline", response=dict, summary="All that happened to a run, newest first")
def get_timeline(request: HttpRequest, run_id: UUID, kind: Kinds = NO_KINDS, before: Moment = None) -> Any:
    """States, starts and ends, evaluations, checkpoints, incidents, alerts. `next` goes into `before`."""
    items, following = event_list.page(_run(request, run_id), dict.fromkeys(kind) or get_args(Kind), before)
    return {"items": [asdict(item) for item in items], "next": following}


@router.get("/runs/{run_id}/config", response=dict, summary="A run's settings, beside those of another run")
def get_config(request: HttpRequest, run_id: UUID, against: UUID | None = None, only_different: bool = False) -> Any:
    """By dotted path: the values of this run and of `against`; null and `is_there` false where a run has none."""
    runs = [_run(request, run_id), *([_run(request, against)] if against else [])]
    lines = settings_diff.lines([settings_diff.effective(run) for run in runs])
    return {"runs": [str(run.pk) for run in runs], "lines": _told(lines, only_different=only_different)}


def _told(lines: list[settings_diff.Line], *, only_different: bool) -> list[dict[str, Any]]:
    return [
        {
            "path": line.path,
            "values": [None if value is settings_diff.ABSENT else value for value in line.values],
            "is_there": [value is not settings_diff.ABSENT for value in line.values],
            "differs": line.differs,
        }
        for line in lines
        if line.differs or not only_different
    ]


@router.get("/runs/{run_id}/system", response=dict, summary="Where a run spent its time and memory")
def get_system(
    request: HttpRequest, run_id: UUID, buckets: Annotated[int, Query(ge=1, le=system.BUCKETS)] = system.BUCKETS
) -> Any:
    """Buckets of consecutive steps: seconds by phase, tokens, rollouts, the highest memory; and the attempts."""
    run = _run(request, run_id)
    found = system.steps(run)
    return {
        "buckets": [asdict(bucket) for bucket in system.buckets(found, buckets)],
        "attempts": [asdict(attempt) for attempt in system.attempts(run)],
    }


@router.get("/compare/table", response=dict, summary="The table of a comparison: best and last of each agent")
def compare_table(request: HttpRequest, asked: Query[CompareQuery]) -> Any:
    """`runs` repeated, at most 8; `baseline` is one of them; `best`: high or low. `differing`: settings not alike."""
    chosen = choice(request)
    if chosen is None:
        raise FieldErrors([FieldError("missing", "Name the runs to compare.", "runs")])
    if asked.baseline and asked.baseline not in {str(run.pk) for run in chosen.runs}:
        raise Http404
    rows = comparison.table(chosen.runs, chosen.metric, chosen.baseline, lowest=chosen.best == "low")
    lines = settings_diff.lines([settings_diff.effective(run) for run in chosen.runs])
    names = ("best", "best_step", "last", "last_step", "best_difference", "last_difference")
    return {
        "metric": chosen.metric,
        "metrics": chosen.metrics,
        "baseline": str(chosen.baseline.pk),
        "runs": [
            {"id": str(run.pk), "name": run.name, "algorithm": run.algorithm, "seed": run.seed} for run in chosen.runs
        ],
        "rows": [
            {"run": str(row.run.pk), "agent": None if row.is_mean else row.agent}
            | {name: getattr(row, name) for name in names}
            for row in rows
        ],
        "differing": _told(lines, only_different=True),
    }
