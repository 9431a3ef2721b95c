"""Quotas of a project: what it uses, what it may use, and the refusals.

Launches and claims count within a transaction that holds the project's quota row, so no two of them pass together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from django.db.models import Sum
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field

from hacrl_web.accounts.models import Project
from hacrl_web.ops.disk_space import full_disk
from hacrl_web.runs.models import HELD, GpuUse, Host, Quota, Run, State
from hacrl_web.runs.project_settings import checked_settings, replace_settings, stored_settings
from hacrl_web.web.errors import FieldErrors, listed

WAITING = frozenset({State.QUEUED, State.PAUSED, State.LOST})  # paused ones too: resuming needs no further place
GIB = 2**30
MAX_COUNT = 100_000
MAX_AMOUNT = 1e7
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)] | None
Amount = Annotated[float, Field(ge=0, le=MAX_AMOUNT, allow_inf_nan=False)] | None
NAMED_HOSTS = 3
MORE = "or ask the staff of this installation for a larger quota"


class QuotaReached(FieldErrors):
    """A launch that a quota refuses; it may succeed later."""


class QuotaLimits(BaseModel):
    """running, waiting: runs.  gpu_hours: in a month.  disk_gib: files of the project's runs.  None: no limit."""

    model_config = ConfigDict(extra="forbid")

    running: Count = None
    waiting: Count = None
    gpu_hours: Amount = None
    disk_gib: Amount = None


NAMES = tuple(QuotaLimits.model_fields)


@dataclass(frozen=True)
class ProjectUse:
    """What a project uses now; gpu_hours: since the month began, UTC."""

    running: int
    waiting: int
    gpu_hours: float
    disk_gib: float


def limits_of(project: Project) -> QuotaLimits:
    return stored_settings(Quota, QuotaLimits, project)


def set_limits(user: Any, project: Project, values: Mapping[str, Any]) -> QuotaLimits:
    """Replace all limits; an empty text is none. Error: FieldErrors (403 for a user who is not staff; 422)."""
    limits = checked_settings(user, QuotaLimits, values, "quotas")
    replace_settings(Quota, project, limits)
    return limits


def use_of(project: Project, now: datetime | None = None) -> ProjectUse:
    runs = Run.objects.filter(project=project)
    return ProjectUse(
        running=runs.filter(state__in=HELD).count(),
        waiting=runs.filter(state__in=WAITING).count(),
        gpu_hours=gpu_hours_of(project.pk, now),
        disk_gib=disk_gib_of(project.pk),
    )


def gpu_hours_of(project_id: int, now: datetime | None = None) -> float:
    """GPUs times hours of all attempts since the month began, UTC."""
    begin = (now or timezone.now()).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    uses = GpuUse.objects.filter(project=project_id, until_at__gt=begin).values_list("gpus", "from_at", "until_at")
    return sum(gpus * (until - max(begin, start)).total_seconds() for gpus, start, until in uses) / 3600


def disk_gib_of(project_id: int) -> float:
    """Files of the project's runs as last measured (worker/usage.py)."""
    total = Run.objects.filter(project=project_id).aggregate(total=Sum("files_bytes"))["total"]
    return (total or 0) / GIB


def check_launch(project: Project) -> None:
    """Called within the transaction that adds a waiting run, before it is added. Error: QuotaReached (409)."""
    quota = Quota.objects.select_for_update().filter(project=project).first()
    if quota is None:
        return
    waiting = Run.objects.filter(project=project, state__in=WAITING)
    if quota.waiting is not None and waiting.count() >= quota.waiting:
        text = f"Project “{project}” may have {quota.waiting:,} waiting runs, and this launch would exceed that: "
        raise _refusal(text + f"wait until some have started, {MORE}.")
    if message := gpu_hours_refusal(quota):
        raise _refusal(message)
    check_disk(project, quota)


def check_disk(project: Project, quota: Quota | None, more_bytes: int = 0) -> None:
    """more_bytes: of files to come.  Error: QuotaReached (409), if the project has the files that it may have."""
    if quota is None or quota.disk_gib is None:
        return
    used = disk_gib_of(project.pk)
    if used >= quota.disk_gib or used + more_bytes / GIB > quota.disk_gib:
        text = f"The runs of project “{project}” take {used:,.1f} of {quota.disk_gib:,.1f} GiB: delete some, {MORE}."
        raise _refusal(text)


def _refusal(message: str) -> QuotaReached:
    return QuotaReached.single("quota", message, status=409)


def gpu_hours_refusal(quota: Quota) -> str:
    """Why no run of the project may begin this month; empty if it may."""
    if quota.gpu_hours is None or (used := gpu_hours_of(quota.project_id)) < quota.gpu_hours:
        return ""
    return (
        f"Project “{quota.project}” has used {used:,.1f} of its {quota.gpu_hours:,.1f} GPU hours of this month (UTC): "
        f"wait for the next month, {MORE}."
    )


def start_refusal(quota: Quota) -> str:
    """Why a waiting run of the project does not begin now; empty if it may."""
    running = Run.objects.filter(project=quota.project_id, state__in=HELD).count()
    if quota.running is not None and running >= quota.running:
        return f"Project “{quota.project}” may run {quota.running:,} at once, and {running:,} run now."
    return gpu_hours_refusal(quota)


def blocked_projects() -> list[int]:
    """Ids of the projects of which no run may begin now."""
    quotas: Iterable[Quota] = Quota.objects.exclude(running=None, gpu_hours=None).select_related("project")
    return [quota.project_id for quota in quotas if start_refusal(quota)]


def waiting_reason(run: Run) -> str:
    """Why a queued run waits, if it is because of a full disk or a quota; else empty."""
    if run.state != State.QUEUED:
        return ""
    if sentence := _full_disk_of_hosts(run):
        return sentence
    quota = Quota.objects.filter(project=run.project_id).select_related("project").first()
    return start_refusal(quota) if quota is not None else ""


def _full_disk_of_hosts(run: Run) -> str:
    """What is said if the disks of all live hosts that could take the run are full; without such hosts: of this one."""
    live = [host for host in Host.objects.with_now() if not host.is_silent and not host.is_drained]
    hosts = [host for host in live if run.data_folder in ("", host.data_folder)]
    if not hosts:
        return full_disk()
    if not all(host.full_disk for host in hosts):
        return ""
    if len(hosts) == 1:
        return f"{hosts[0].name} takes no runs. {hosts[0].full_disk}"
    return f"{listed([host.name for host in hosts], NAMED_HOSTS)} take no runs: their disks are full."
