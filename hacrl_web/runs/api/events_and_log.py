"""The API's part for what a run reports: events by cursor, log, trainer output, disk use."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Query, Router

from hacrl_web.runs.api.schemas import EventsAnswer, LogLineAnswer, OutputAnswer
from hacrl_web.runs.archive.disk_use import DiskUse, disk_use
from hacrl_web.runs.live.event_reader import BATCH_EVENTS, events_frame, read_batch, read_status
from hacrl_web.runs.models import TelemetryEvent
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.telemetry import logs
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf
from hacrl_web.web.streaming import download
from workers.contract.events import Body

MAX_CURSOR = 2**62
EVENT_TYPES = tuple(body.model_fields["type"].default for body in Body.__subclasses__())
Search = Annotated[str, Query(max_length=200)]
router = Router(tags=["runs"])


@router.get("/runs/{run_id}/events", response=EventsAnswer, summary="Events after a cursor: the socket's frame")
def get_events(
    request: HttpRequest,
    run_id: UUID,
    after: Annotated[int, Query(ge=0, lt=MAX_CURSOR)] = 0,
    limit: Annotated[int, Query(ge=1, le=BATCH_EVENTS)] = BATCH_EVENTS,
    types: Annotated[str, Query(max_length=200)] = "",
) -> Any:
    """`{"op": "events", "run", "prev", "seq", "events"}`; for the next ones set `after` to `seq`. Also
    `status`, the socket's frame of the run's state, and `last_seq`, the newest stored event.

    `types`: the types to answer with, such as `metrics,evaluation`; all without it.
    """
    names = [name for name in types.split(",") if name]
    if unknown := [name for name in names if name not in EVENT_TYPES]:
        raise FieldErrors.single("invalid", f"No type {unknown[0]!r}: {', '.join(EVENT_TYPES)}.", "types")
    run = visible_run(request, run_id)
    status = read_status([run.pk])[run.pk]
    if after > status.last_seq:
        raise FieldErrors.single("bad_cursor", f"The run has no event {after}: the last is {status.last_seq}.", "after")
    batch = read_batch(run.pk, after, status.last_seq, limit, names)
    # Behind the last event of these types there may be others.
    seq = batch.seq if batch.count == limit or not names else status.last_seq
    frame = events_frame(run.pk, after, seq, [batch.text] if batch.count else [])
    # Both frames are JSON texts already: joining them saves parsing and writing them again.
    text = f'{frame[:-1]},"status":{status.text},"last_seq":{status.last_seq}}}'
    return HttpResponse(text, content_type="application/json; charset=utf-8")


@router.get(
    "/runs/{run_id}/log", response=PageOf[LogLineAnswer], summary="Lines of the log, oldest first or newest first"
)
def get_log(
    request: HttpRequest,
    run_id: UUID,
    query: Query[ListQuery],
    q: Search = "",
    level: Literal["", "info", "warning", "error"] = "",
    order: Literal["oldest", "newest"] = "oldest",
) -> Any:
    """`q`: lines that hold it, whatever its case. Without `q` and `level` also the counts of what was left out."""
    run = visible_run(request, run_id)
    search = q.replace("\x00", "")
    rows = logs.matching(run, search, level) if search or level else logs.log_lines(run)
    return listing(rows.order_by("seq" if order == "oldest" else "-seq"), query, _log_line)


def _log_line(event: TelemetryEvent) -> dict[str, Any]:
    return {"seq": event.seq, "attempt": event.attempt, **logs.line_of(event)}


@router.get(
    "/runs/{run_id}/output", response=OutputAnswer, summary="The newest lines of the trainer's stdout and stderr"
)
def get_output(request: HttpRequest, run_id: UUID, q: Search = "") -> Any:
    """At most 500. `lines` is null where the run directory lies on another host."""
    matches = logs.search_output(visible_run(request, run_id), q.replace("\x00", ""))
    return {"lines": None if matches is None else [line["text"] for line in matches[-logs.FOUND_SHOWN :]]}


@router.get("/runs/{run_id}/log.txt", response={200: None}, summary="The whole log as text")
def get_log_file(request: HttpRequest, run_id: UUID) -> StreamingHttpResponse:
    run = visible_run(request, run_id)
    return download(request, logs.as_text(run), f"log-{run.pk}.txt", "text/plain")


@router.get("/runs/{run_id}/disk", response=DiskUse, summary="What a run takes on the disk")
def get_disk(request: HttpRequest, run_id: UUID) -> Any:
    """`files_bytes` is null where the run directory lies on another host."""
    return disk_use(visible_run(request, run_id))
