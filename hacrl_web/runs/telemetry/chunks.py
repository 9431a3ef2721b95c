"""The numbers of a run's metrics as columns: the one function that reads them, and the chunks that make it quick.

A chunk is a copy: the events stay, so (run, seq) still proves each stored once, and sockets replay them as before.
`Run.packed_seq` says up to which event chunks tell the numbers; it moves by compare-and-swap in the transaction that
stores them. What is newer is read from its events. Where attempts tell a step twice, the highest attempt wins.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

from django.db import transaction
from django.db.models import TextField
from django.db.models.functions import Cast
from pydantic_core import from_json

from hacrl_web.runs.models import MetricChunk, Run

MIN_EVENTS = 1000  # fewer are read as quickly from their events
BLOCK_EVENTS = 4000  # packed at once
READ_TRIES = 3
RATIOS, EVALUATIONS = 10_000, 20_000  # their places begin here, after those of values
Key = tuple[str, str, str]  # metric, agent, source
Pair = tuple[str, str]  # agent, source
Told = dict[Pair, dict[int, int]]  # step -> highest attempt that tells of it
_EVENT = ("attempt", "step", "agent", "source")
_BLOB = ("packed", "count", "first_step", "last_step")


@dataclass
class SeriesColumn:
    """One line of a chart. steps: ascending.  values: NaN where there is no number."""

    place: int = 0
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    is_mixed: bool = False  # a step came after a later one: to be sorted

    def add(self, step: int, value: float | None) -> None:
        if self.steps and step < self.steps[-1]:
            self.is_mixed = True
        self.steps.append(step)
        self.values.append(nan if value is None else value)

    def extend(self, other: SeriesColumn) -> None:
        if self.steps and other.steps and other.steps[0] < self.steps[-1]:
            self.is_mixed = True
        self.steps += other.steps
        self.values += other.values

    def sort(self) -> None:
        """By step; points of one step stay in their order."""
        order = sorted(range(len(self.steps)), key=self.steps.__getitem__)
        self.steps = array("q", map(self.steps.__getitem__, order))
        self.values = array("d", map(self.values.__getitem__, order))
        self.is_mixed = False

    def cut(self, first: int | None, last: int | None) -> None:
        """Keep the steps from `first` to `last`."""
        start = 0 if first is None else bisect_left(self.steps, first)
        end = len(self.steps) if last is None else bisect_right(self.steps, last)
        self.steps, self.values = self.steps[start:end], self.values[start:end]

    def before(self, attempt: int, first_steps: dict[int, int]) -> SeriesColumn:
        """Without the steps that a later attempt than `attempt`, which told this column, tells too."""
        part = SeriesColumn(self.place)
        for step, value in zip(self.steps, self.values, strict=True):
            if first_steps.get(step, 0) <= attempt:
                part.add(step, value)
        return part

    def numbers(self) -> list[float | None]:
        """The values, with None where there is no number."""
        values: list[float | None] = self.values.tolist()  # type: ignore[assignment]
        if any(map(isnan, self.values)):
            return [None if isnan(value) else value for value in self.values]
        return values


Columns = dict[Key, SeriesColumn]


# ---- the blob of a chunk --------------------------------------------------------------------------------------------


def pack(column: SeriesColumn) -> bytes:
    """Values as little-endian doubles, then the steps as integers unless they are evenly spaced; compressed."""
    numbers = _little_endian(column.values)
    if not _is_even(column.steps):
        numbers += _little_endian(column.steps)
    return zlib.compress(numbers, 1)


def unpack(packed: bytes, count: int, first_step: int, last_step: int) -> SeriesColumn:
    text = zlib.decompress(packed)
    values, steps = array("d", text[: 8 * count]), array("q", text[8 * count :])
    if sys.byteorder == "big":
        values.byteswap()
        steps.byteswap()
    if not steps:
        stride = (last_step - first_step) // max(1, count - 1)
        steps = array("q", range(first_step, last_step + 1, stride or 1))
    return SeriesColumn(0, steps, values)


def _little_endian(numbers: array[Any]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _is_even(steps: array[int]) -> bool:
    stride = (steps[-1] - steps[0]) // max(1, len(steps) - 1)
    return steps == array("q", range(steps[0], steps[-1] + 1, stride or 1))


# ---- reading --------------------------------------------------------------------------------------------------------


def columns(
    run: Run,
    names: Collection[str] = (),
    agents: Collection[str] = (),
    first: int | None = None,
    last: int | None = None,
) -> dict[Key, SeriesColumn]:
    """The metrics of a run, and the evaluations on its own benchmark, by (metric, agent, source).

    Ordered by agent, source and place. Empty choices mean all.  first, last: only the steps from `first` to `last`.
    """
    # No name of ours holds a NUL, and PostgreSQL would refuse to look for one.
    names, agents = ([text.replace("\0", "\N{REPLACEMENT CHARACTER}") for text in texts] for texts in (names, agents))
    for _ in range(READ_TRIES):
        packed_seq = _packed_seq(run)
        reader = _SeriesReader(run, names, agents, packed_seq)
        reader.read_chunks(first, last)
        reader.read_metrics()
        if _packed_seq(run) == packed_seq:
            break
    else:  # chunks were made, or trimmed, each time while these were read
        reader = _SeriesReader(run, names, agents, 0)
        reader.read_metrics()
    reader.read_evaluations()
    for column in reader.found.values():
        if column.is_mixed:
            column.sort()
        if first is not None or last is not None:
            column.cut(first, last)
    ordered = sorted(reader.found.items(), key=lambda item: (item[0][1:], item[1].place))
    return {key: column for key, column in ordered if column.steps}


def _packed_seq(run: Run) -> int:
    """As the database knows it now."""
    return Run.objects.values_list("packed_seq", flat=True).filter(pk=run.pk).first() or 0


def _first_attempt(run: Run) -> int:
    """Of the events that are stored. A later event is never of an earlier attempt."""
    return run.events.order_by("seq").values_list("attempt", flat=True).first() or 0


def _has_attempts(run: Run) -> bool:
    newest = run.events.order_by("-seq").values_list("attempt", flat=True).first() or 0
    return newest > _first_attempt(run)


class _SeriesReader:
    """Puts columns together: chunks up to packed_seq, events after it."""

    def __init__(self, run: Run, names: Collection[str], agents: Collection[str], packed_seq: int) -> None:
        self.run, self.names, self.agents = run, names, agents
        self.packed_seq, self.has_attempts = packed_seq, _has_attempts(run)
        self.found: dict[Key, SeriesColumn] = {}
        self.told = _told(self._events("metrics")) if self.has_attempts else {}

    def _events(self, kind: str) -> Any:
        after = self.packed_seq if kind == "metrics" else 0
        return self.run.events.filter(type=kind, seq__gt=after, step__isnull=False).order_by("seq")

    def _column(self, key: Key, place: int) -> SeriesColumn:
        column = self.found.setdefault(key, SeriesColumn())
        column.place = max(column.place, place)
        return column

    def read_chunks(self, first: int | None, last: int | None) -> None:
        if not self.packed_seq:
            return
        filters = {"metric__in": self.names, "agent__in": self.agents}
        limits = {"last_step__gte": first, "first_step__lte": last}
        bounds: dict[str, Any] = {name: value for name, value in filters.items() if value}
        bounds |= {name: value for name, value in limits.items() if value is not None}
        chunks = MetricChunk.objects.filter(run=self.run, **bounds).order_by("first_step", "pk")
        for metric, agent, source, place, attempt, *blob in chunks.values_list(
            "metric", "agent", "source", "place", "attempt", *_BLOB
        ).iterator(chunk_size=500):
            piece = unpack(*blob)
            first_steps = self.told.get((agent, source))
            self._column((metric, agent, source), place).extend(
                piece.before(attempt, first_steps) if first_steps else piece
            )

    def read_metrics(self) -> None:
        """What chunks do not tell yet."""
        events = self._events("metrics")
        if self.agents:
            events = events.filter(agent__in=self.agents)
        for attempt, step, agent, source, text in _texts(events):
            if self.told.get((agent, source), {}).get(step, 0) > attempt:
                continue
            for metric, place, value in _numbers(text):
                if not self.names or metric in self.names:
                    self._column((metric, agent, source), place).add(step, value)

    def read_evaluations(self) -> None:
        events = self._events("evaluation")
        first_steps = _told(events) if self.has_attempts else {}
        further = self.run.further_benchmarks
        for attempt, step, agent, source, text in _texts(events):
            if first_steps.get((agent, source), {}).get(step, 0) > attempt:
                continue
            payload = from_json(text)
            metric = payload["metric"]
            if payload.get("benchmark") in further:
                continue
            if (not self.names or metric in self.names) and (not self.agents or agent in self.agents):
                self._column((metric, agent, ""), EVALUATIONS).add(step, _number(payload["value"]))


def _texts(events: Any) -> Iterator[tuple[int, int, str, str, str]]:
    """(attempt, step, agent, source, payload as text): the text is read faster than Django would read it."""
    rows: Iterator[Any] = events.values_list(*_EVENT, Cast("payload", TextField())).iterator(chunk_size=500)
    return rows


def _told(events: Any) -> Told:
    first_steps: Told = {}
    for attempt, step, agent, source in events.values_list(*_EVENT).iterator(chunk_size=2000):
        steps = first_steps.setdefault((agent, source), {})
        steps[step] = max(attempt, steps.get(step, 0))
    return first_steps


def _numbers(text: str) -> Iterator[tuple[str, int, float | None]]:
    """(metric, place, value) of a metrics event: plain values, then the quotients of its (sum, count) ratios.

    What is no number has none: a payload that no trainer of ours writes must not stop whoever reads it.
    """
    payload = from_json(text)
    values, ratios = payload.get("values", {}), payload.get("ratios", {})
    for place, (metric, value) in enumerate(values.items()):
        if metric not in ratios:
            yield metric, place, _number(value)
    for place, (metric, pair) in enumerate(ratios.items(), RATIOS):
        total, count = map(_number, pair) if isinstance(pair, list) and len(pair) == 2 else (None, None)
        yield metric, place, total / count if total is not None and count else None


def _number(value: Any) -> float | None:
    with suppress(OverflowError):
        return float(value) if isinstance(value, int | float) else None
    return None


# ---- packing --------------------------------------------------------------------------------------------------------


def pack_block(run: Run) -> int:
    """Pack the metrics of the next events that are not packed yet, if there are enough; returns of how many events.

    One small transaction, in which `packed_seq` moves by compare-and-swap: of two that pack the same, one does.
    """
    before, first_attempt = _packed_seq(run), _first_attempt(run)
    events = run.events.filter(type="metrics", seq__gt=before).order_by("seq")
    rows = list(events.values_list("seq", *_EVENT, Cast("payload", TextField()))[:BLOCK_EVENTS])
    if len(rows) < MIN_EVENTS:
        return 0
    first_steps = _latest(rows)
    by_key: dict[tuple[int, Key], SeriesColumn] = {}
    for _, attempt, step, agent, source, text in rows:
        if step is None or first_steps[agent, source][step] > attempt:
            continue
        for metric, place, value in _numbers(text):
            column = by_key.setdefault((attempt, (metric, agent, source)), SeriesColumn())
            column.place = max(column.place, place)
            column.add(step, value)
    with transaction.atomic():
        if not Run.objects.filter(pk=run.pk, packed_seq=before).update(packed_seq=rows[-1][0]):
            return 0
        if rows[-1][1] > first_attempt:
            _trim(run, first_steps)
        MetricChunk.objects.bulk_create(
            [_chunk(run, attempt, key, column) for (attempt, key), column in by_key.items()]
        )
    return len(rows)


def _latest(rows: Iterable[tuple[Any, ...]]) -> Told:
    first_steps: Told = {}
    for _, attempt, step, agent, source, _ in rows:
        if step is not None:  # no trainer of ours: a number without a step is on no chart
            steps = first_steps.setdefault((agent, source), {})
            steps[step] = max(attempt, steps.get(step, 0))
    return first_steps


def _chunk(run: Run, attempt: int, key: Key, column: SeriesColumn) -> MetricChunk:
    if column.is_mixed:
        column.sort()
    metric, agent, source = key
    chunk = MetricChunk(run=run, attempt=attempt, metric=metric, agent=agent, source=source, place=column.place)
    _fill(chunk, column)
    return chunk


def _fill(chunk: MetricChunk, column: SeriesColumn) -> None:
    chunk.first_step, chunk.last_step = column.steps[0], column.steps[-1]
    chunk.count, chunk.packed = len(column.steps), pack(column)


def _trim(run: Run, first_steps: Told) -> None:
    """Take out of earlier chunks what later attempts tell anew."""
    for (agent, source), steps in first_steps.items():
        earlier = MetricChunk.objects.filter(run=run, agent=agent, source=source, attempt__lt=max(steps.values()))
        for chunk in earlier.filter(last_step__gte=min(steps)):
            column = unpack(*(getattr(chunk, name) for name in _BLOB))
            part = column.before(chunk.attempt, steps)
            if not part.steps:
                chunk.delete()
            elif len(part.steps) < len(column.steps):
                _fill(chunk, part)
                chunk.save()
