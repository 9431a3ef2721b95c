"""The API's part for hosts: list, drain, forget."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Status
from typing_extensions import TypedDict

from hacrl_web.runs.models import Host
from hacrl_web.runs.models.requests import change_reason
from hacrl_web.runs.worker.hosts import change_drain, forget_host
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["runs"])


class HostAnswer(TypedDict):
    name: str
    last_seen: datetime | None
    clock_offset_s: float | None
    schema: str
    versions: dict[str, str]
    devices: list[dict[str, Any]]
    drain: str
    drain_reason: str


def host_summary(host: Host) -> dict[str, Any]:
    return {name: getattr(host, name) for name in HostAnswer.__annotations__}


@router.get("/hosts", response=PageOf[HostAnswer], summary="Hosts that have sent a heartbeat")
def list_hosts(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(Host.objects.order_by("name"), query, host_summary)


class DrainOrder(StrictBody):
    """`drain`: no (it takes runs), finish (no new ones), now (running ones are saved and requeued)."""

    name: Annotated[str, Field(max_length=255)]
    drain: Literal["no", "finish", "now"]
    why: Annotated[str, Field(max_length=200, description="In your words; shown on the run's page.")] = ""


@router.post("/hosts/drain", response=HostAnswer, summary="Let a host take no more runs, or take them again; for staff")
def drain_host(request: HttpRequest, payload: DrainOrder) -> Any:
    reason = change_reason("drained", request, payload.why)
    return host_summary(change_drain(request.user, payload.name, payload.drain, reason))


class HostName(StrictBody):
    name: Annotated[str, Field(max_length=255)]


@router.post("/hosts/forget", response={204: None}, summary="Remove a silent host that holds no runs; for staff")
def remove_host(request: HttpRequest, payload: HostName) -> Any:
    forget_host(request.user, payload.name)
    return Status(204, None)
