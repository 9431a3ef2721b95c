"""Which events the shipper stores as they are.

None whose fields have wrong types, no flood of metric names, no step back, no event of an earlier attempt.

A refused event is replaced by a warning with its number, so no loss goes unrecorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from hacrl_web.runs.telemetry.event_checks import MOST, problem_of
from hacrl_web.runs.telemetry.tables import HEAD
from hacrl_web.web.errors import plain_errors

Record = dict[str, Any]
Number = Annotated[float, Field(ge=-MOST, le=MOST)] | None  # null: was not finite
NAME_CHARACTERS = 200
NAMES_PER_RUN = 2000


class MetricsPayload(TypedDict, total=False):
    """What is stored of a metrics event; what another version writes besides is left alone."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)  # type: ignore[misc]

    values: dict[str, Number]
    ratios: dict[str, tuple[Number, Number]]
    nonfinite: dict[str, str]


_PAYLOAD = TypeAdapter(MetricsPayload)  # reads the text in a few microseconds: these events are the most by far


class EventRefused(ValueError):
    """Why an event is not stored as it is."""


class FieldsRefused(EventRefused):
    """The event's fields are not those of its type."""


class Admission:
    """Checks the events of one run against those that its shipper has read before."""

    def __init__(self) -> None:
        self._newest_attempt = 0
        self._last_step: dict[tuple[Any, ...], int] = {}
        self._names: set[str] = set()

    @contextmanager
    def undone_by_error(self) -> Iterator[None]:
        """If the block fails, the steps of the events in it are forgotten: they will be read again."""
        before = self._newest_attempt, dict(self._last_step)
        try:
            yield
        except BaseException:
            self._newest_attempt, self._last_step = before
            raise

    def check(self, record: Record, payload_text: str | None) -> None:
        """payload_text: of a metrics event that was not parsed. Error: EventRefused."""
        attempt = record["attempt"]
        if attempt < self._newest_attempt:
            raise EventRefused(f"it is of attempt {attempt}, after attempt {self._newest_attempt}")
        if attempt > self._newest_attempt:
            self._newest_attempt = attempt
            self._last_step.clear()
        if record["type"] == "metrics":
            self._check_step(record)
            self._check_payload(record, payload_text)
        elif problem := problem_of(record):
            raise FieldsRefused(problem)

    def _check_step(self, record: Record) -> None:
        step, agent, source = record.get("step"), record.get("agent"), record.get("source")
        if type(step) is not int or not isinstance(agent, str) or not isinstance(source or "", str):
            raise FieldsRefused("step: a whole number is needed, agent and source: names")
        place = (agent[:80], str(source)[:80])
        last = self._last_step.get(place, 0)
        if step < last:
            raise EventRefused(f"it goes back to step {step}, after step {last}")
        self._last_step[place] = step

    def _check_payload(self, record: Record, text: str | None) -> None:
        if text is None:
            text = json.dumps({name: record[name] for name in MetricsPayload.__annotations__ if name in record})
        try:
            payload: Any = _PAYLOAD.validate_json(text)
        except ValidationError as error:
            first = plain_errors(error)[0]
            raise FieldsRefused(f"{first.field}: {first.message}") from None
        if own := next((name for name in HEAD if name in payload), ""):
            raise FieldsRefused(f"{own} stands among its values")
        names = {*payload.get("values", ()), *payload.get("ratios", ())} - self._names
        if (longest := max(map(len, names), default=0)) > NAME_CHARACTERS:
            raise EventRefused(f"a name in it has {longest:,} characters; at most {NAME_CHARACTERS} are allowed")
        if len(self._names) + len(names) > NAMES_PER_RUN:
            raise EventRefused(f"the run would have more than {NAMES_PER_RUN:,} metric names")
        self._names |= names
