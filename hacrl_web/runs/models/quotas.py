"""Quotas of a project: what it uses, and the refusals.

Launches and claims count within a transaction that holds the project's quota row, so no two of them pass together.
"""

from __future__ import annotations

from django.db.models import Sum
from typing_extensions import TypedDict

from hacrl_web.accounts.models import Project
from hacrl_web.ops.disk_space import full_disk
from hacrl_web.runs.models import HELD, MORE, GpuUse, Host, Quota, Run, State
from hacrl_web.web.errors import FieldErrors, listed

WAITING = frozenset({State.QUEUED, State.PAUSED, State.LOST})  # paused ones too: resuming needs no further place
GIB = 2**30
NAMED_HOSTS = 3


class QuotaReached(FieldErrors):
    """A launch that a quota refuses; it may succeed later."""


class ProjectUse(TypedDict):
    """gpu_hours: since the month began, UTC.  disk_gib: files of the project's runs, as last measured."""

    running: int
    waiting: int
    gpu_hours: float
    disk_gib: float


def use_of(project: Project) -> ProjectUse:
    runs = Run.objects.filter(project=project)
    return {
        "running": runs.filter(state__in=HELD).count(),
        "waiting": runs.filter(state__in=WAITING).count(),
        "gpu_hours": GpuUse.hours_of(project.pk),
        "disk_gib": (runs.aggregate(total=Sum("files_bytes"))["total"] or 0) / GIB,
    }


def check_launch(project: Project) -> None:
    """Called within the transaction that adds a waiting run, before it is added. Error: QuotaReached (409)."""
    quota = Quota.objects.select_for_update().filter(project=project).first()
    if quota is None:
        return
    waiting = Run.objects.filter(project=project, state__in=WAITING)
    if quota.waiting is not None and waiting.count() >= quota.waiting:
        text = f"Project “{project}” may have {quota.waiting:,} waiting runs, and this launch would exceed that: "
        raise _refusal(text + f"wait until some have started, {MORE}.")
    if message := quota.gpu_hours_refusal():
        raise _refusal(message)
    check_disk(project)


def check_disk(project: Project, more_bytes: int = 0) -> None:
    """more_bytes: of files to come.  Error: QuotaReached (409), if the project has the files that it may have."""
    limit = Quota.objects.filter(project=project).values_list("disk_gib", flat=True).first()
    if limit is None:
        return
    used = use_of(project)["disk_gib"]
    if used >= limit or used + more_bytes / GIB > limit:
        raise _refusal(f"The runs of project “{project}” take {used:,.1f} of {limit:,.1f} GiB: delete some, {MORE}.")


def _refusal(message: str) -> QuotaReached:
    return QuotaReached.single("quota", message, status=409)


def waiting_reason(run: Run) -> str:
    """Why a queued run waits, if it is because of a full disk or a quota; else empty."""
    if run.state != State.QUEUED:
        return ""
    if sentence := _full_disk_of_hosts(run):
        return sentence
    quota = Quota.objects.filter(project=run.project_id).select_related("project").first()
    return Run.objects.start_refusal(quota) if quota is not None else ""


def _full_disk_of_hosts(run: Run) -> str:
    """The sentence if the disks of all live hosts that could take the run (or of this host, without any) are full."""
    live = [host for host in Host.objects.with_now() if not host.is_silent and not host.is_drained]
    hosts = [host for host in live if run.data_folder in ("", host.data_folder)]
    if not hosts:
        return full_disk()
    if not all(host.full_disk for host in hosts):
        return ""
    if len(hosts) == 1:
        return f"{hosts[0].name} takes no runs. {hosts[0].full_disk}"
    return f"{listed([host.name for host in hosts], NAMED_HOSTS)} take no runs: their disks are full."
