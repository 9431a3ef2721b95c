"""The API's part for the events of a run by cursor, as its socket sends them."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from typing_extensions import TypedDict

from hacrl_web.runs.live.event_reader import BATCH_EVENTS, events_frame, read_batch, read_status
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.web.errors import FieldErrors
from workers.contract.events import Body

MAX_CURSOR = 2**62
EVENT_TYPES = tuple(body.model_fields["type"].default for body in Body.__subclasses__())
router = Router(tags=["runs"])


class EventAnswer(TypedDict):
    """payload: as docs/metrics.md has it, by type."""

    seq: int
    attempt: int
    type: str
    step: int | None
    agent: str
    source: str
    time: float
    payload: dict[str, Any]


class StatusFrame(TypedDict):
    op: str
    run: str
    state: str
    desired_state: str
    step: int
    total_steps: int
    attempt: int
    progress: dict[str, Any]
    reason: str


class EventsAnswer(TypedDict):
    """The socket's frame: events after `prev` up to `seq`, of `last_seq` in all."""

    op: str
    run: str
    prev: int
    seq: int
    events: list[EventAnswer]
    status: StatusFrame
    last_seq: int


@router.get("/runs/{run_id}/events", response=EventsAnswer, summary="Events after a cursor: the socket's frame")
def get_events(
    request: HttpRequest,
    run_id: UUID,
    after: Annotated[int, Query(ge=0, lt=MAX_CURSOR)] = 0,
    limit: Annotated[int, Query(ge=1, le=BATCH_EVENTS)] = BATCH_EVENTS,
    types: Annotated[str, Query(max_length=200)] = "",
) -> Any:
    """Returns `{"op": "events", "run", "prev", "seq", "events"}`; for the next ones set `after` to `seq`. Also
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
