"""The metrics of a run by step: `read_series`, the one function that reads them, and the chunks that make it quick.

A chunk is a packed copy of one metric's values: its events remain, so (run, seq) still proves that each is stored once,
and sockets replay them as before. `Run.packed_seq` is the seq of the last packed event; it moves by compare-and-swap in
the transaction that stores the chunks. Later values are read from their events. If several attempts recorded a step,
the highest attempt wins.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite, isnan, nan
from operator import gt
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
LatestAttempts = dict[tuple[str, str], dict[int, int]]  # (agent, source) -> step -> highest attempt that recorded it
_EVENT = ("attempt", "step", "agent", "source")
_BLOB = ("packed", "count", "first_step", "last_step")


@dataclass(frozen=True)
class MetricSeries:
    """The values of one metric by step. source: empty for an agent's own metric.

    steps: ascending.  values: NaN if a step has no number.
    """

    metric: str
    agent: str
    source: str = ""
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    @property
    def key(self) -> Key:
        return self.metric, self.agent, self.source

    def add(self, step: int, value: float | None) -> None:
        self.steps.append(step)
        self.values.append(nan if value is None else value)

    def numbers(self) -> list[float | None]:
        """The values, with None for NaN."""
        return [None if isnan(value) else value for value in self.values]

    def points(self) -> Iterator[tuple[int, float]]:
        """(step, value) of the steps with a number."""
        return ((step, value) for step, value in zip(self.steps, self.values, strict=True) if not isnan(value))

    def in_order(self) -> MetricSeries:
        """The points in the order of steps; points of one step keep their order."""
        if not any(map(gt, self.steps, self.steps[1:])):
            return self
        order = sorted(range(len(self.steps)), key=self.steps.__getitem__)
        steps, values = map(self.steps.__getitem__, order), map(self.values.__getitem__, order)
        return replace(self, steps=array("q", steps), values=array("d", values))

    def between(self, first: int | None, last: int | None) -> MetricSeries:
        """The steps from `first` to `last`; None is no bound."""
        start = 0 if first is None else bisect_left(self.steps, first)
        end = len(self.steps) if last is None else bisect_right(self.steps, last)
        return replace(self, steps=self.steps[start:end], values=self.values[start:end])

    def without_repeated(self, attempt: int, latest: LatestAttempts) -> MetricSeries:
        """Values that `attempt` recorded, without the steps that a later attempt recorded again."""
        attempts = latest.get((self.agent, self.source))
        if not attempts:
            return self
        rest = MetricSeries(*self.key)
        for step, value in zip(self.steps, self.values, strict=True):
            if attempts.get(step, 0) <= attempt:
                rest.add(step, value)
        return rest


# ---- the blob of a chunk --------------------------------------------------------------------------------------------


def pack(steps: array[int], values: array[float]) -> bytes:
    """Values as doubles of this machine's order, then the steps as integers unless they are evenly spaced; compressed.

    All machines that PyTorch runs on are little-endian.
    """
    is_even = steps == _even_steps(len(steps), steps[0], steps[-1])
    return zlib.compress(values.tobytes() + (b"" if is_even else steps.tobytes()), 1)


def unpack(packed: bytes, count: int, first_step: int, last_step: int) -> tuple[array[int], array[float]]:
    """Steps and values."""
    text = zlib.decompress(packed)
    values, steps = array("d", text[: 8 * count]), array("q", text[8 * count :])
    return steps or _even_steps(count, first_step, last_step), values


def _even_steps(count: int, first: int, last: int) -> array[int]:
    return array("q", range(first, last + 1, (last - first) // max(1, count - 1) or 1))


# ---- reading --------------------------------------------------------------------------------------------------------


def read_series(
    run: Run,
    metrics: Collection[str] = (),
    agents: Collection[str] = (),
    first: int | None = None,
    last: int | None = None,
) -> list[MetricSeries]:
    """The metrics of a run, and the evaluations on its own benchmark, by agent, source and their order in events.

    Empty choices mean all.  first, last: only the steps from `first` to `last`.
    """
    # No name of ours holds a NUL, and PostgreSQL would refuse to look for one.
    metrics, agents = ([name.replace("\0", "\N{REPLACEMENT CHARACTER}") for name in some] for some in (metrics, agents))
    for _ in range(READ_TRIES):
        packed_seq = _packed_seq(run)
        reader = _SeriesReader(run, metrics, agents, packed_seq)
        reader.read_chunks(first, last)
        reader.read_metrics()
        if _packed_seq(run) == packed_seq:
            break
    else:  # chunks were stored or trimmed during each try
        reader = _SeriesReader(run, metrics, agents, 0)
        reader.read_metrics()
    reader.read_evaluations()
    ordered = sorted(reader.series.values(), key=lambda one: (one.agent, one.source, reader.places[one.key]))
    return [one for series in ordered if (one := series.in_order().between(first, last)).steps]


def metric_rows(run: Run) -> Iterator[tuple[int, str, str, str, float | None]]:
    """(step, agent, source, metric, value) of every metric and evaluation, by step."""
    all_series = read_series(run)
    places = [0] * len(all_series)  # of the next point of each
    for step in sorted({step for series in all_series for step in series.steps}):
        for number, series in enumerate(all_series):
            while places[number] < len(series.steps) and series.steps[places[number]] == step:
                value = series.values[places[number]]
                places[number] += 1
                yield step, series.agent, series.source, series.metric, None if isnan(value) else value


def _packed_seq(run: Run) -> int:
    """The seq up to which points are packed, as the database has it now."""
    return Run.objects.values_list("packed_seq", flat=True).filter(pk=run.pk).first() or 0


def _first_attempt(run: Run) -> int:
    """The attempt of the first stored event. A later event is never of an earlier attempt."""
    return run.events.order_by("seq").values_list("attempt", flat=True).first() or 0


class _SeriesReader:
    """Collects series: from chunks up to packed_seq, from events after it."""

    def __init__(self, run: Run, metrics: Collection[str], agents: Collection[str], packed_seq: int) -> None:
        self.run, self.metrics, self.agents, self.packed_seq = run, metrics, agents, packed_seq
        newest = run.events.order_by("-seq").values_list("attempt", flat=True).first() or 0
        self.has_attempts = newest > _first_attempt(run)
        self.series: dict[Key, MetricSeries] = {}
        self.places: dict[Key, int] = {}
        self.latest = self._latest(self._events("metrics"))

    def _events(self, kind: str) -> Any:
        after = self.packed_seq if kind == "metrics" else 0
        return self.run.events.filter(type=kind, seq__gt=after, step__isnull=False).order_by("seq")

    def _latest(self, events: Any) -> LatestAttempts:
        return _latest_attempts(events.values_list(*_EVENT).iterator(chunk_size=2000)) if self.has_attempts else {}

    def _series(self, key: Key, place: int) -> MetricSeries:
        if key not in self.series:
            self.series[key], self.places[key] = MetricSeries(*key), place
        elif place > self.places[key]:
            self.places[key] = place
        return self.series[key]

    def read_chunks(self, first: int | None, last: int | None) -> None:
        if not self.packed_seq:
            return
        filters = {"metric__in": self.metrics, "agent__in": self.agents}
        limits = {"last_step__gte": first, "first_step__lte": last}
        bounds: dict[str, Any] = {name: value for name, value in filters.items() if value}
        bounds |= {name: value for name, value in limits.items() if value is not None}
        chunks = MetricChunk.objects.filter(run=self.run, **bounds).order_by("first_step", "pk")
        rows = chunks.values_list("metric", "agent", "source", "place", "attempt", *_BLOB)
        for metric, agent, source, place, attempt, *blob in rows.iterator(chunk_size=500):
            piece = MetricSeries(metric, agent, source, *unpack(*blob)).without_repeated(attempt, self.latest)
            series = self._series(piece.key, place)
            series.steps.extend(piece.steps)
            series.values.extend(piece.values)

    def read_metrics(self) -> None:
        """The metrics that no chunk holds yet."""
        events = self._events("metrics")
        if self.agents:
            events = events.filter(agent__in=self.agents)
        for attempt, step, agent, source, text in _texts(events):
            if self.latest.get((agent, source), {}).get(step, 0) > attempt:
                continue
            for metric, place, value in event_numbers(text):
                if not self.metrics or metric in self.metrics:
                    self._series((metric, agent, source), place).add(step, value)

    def read_evaluations(self) -> None:
        events = self._events("evaluation")
        latest, further = self._latest(events), self.run.further_benchmarks
        for attempt, step, agent, source, text in _texts(events):
            payload = from_json(text)
            metric = payload["metric"]
            if latest.get((agent, source), {}).get(step, 0) > attempt or payload.get("benchmark") in further:
                continue
            if (not self.metrics or metric in self.metrics) and (not self.agents or agent in self.agents):
                self._series((metric, agent, ""), EVALUATIONS).add(step, number_or_none(payload["value"]))


def _texts(events: Any) -> Iterator[tuple[int, int, str, str, str]]:
    """(attempt, step, agent, source, payload as text): parsing the text here is faster than Django's JSONField."""
    rows: Iterator[Any] = events.values_list(*_EVENT, Cast("payload", TextField())).iterator(chunk_size=500)
    return rows


def _latest_attempts(events: Iterable[tuple[Any, ...]]) -> LatestAttempts:
    latest: LatestAttempts = {}
    for attempt, step, agent, source, *_ in events:
        if step is not None:  # not from a trainer of ours: a number without a step is on no chart
            attempts = latest.setdefault((agent, source), {})
            attempts[step] = max(attempt, attempts.get(step, 0))
    return latest


def event_numbers(text: str) -> Iterator[tuple[str, int, float | None]]:
    """(metric, place, value) of a metrics event: plain values, then the quotients of its (sum, count) ratios.

    What is not a number becomes None: a payload that no trainer of ours writes must not stop the reader.
    """
    try:
        payload = from_json(text)
    except ValueError:  # nested too deeply, or a number of thousands of digits
        return
    parts = [payload.get(name) for name in ("values", "ratios")] if isinstance(payload, dict) else [None, None]
    values, ratios = (part if isinstance(part, dict) else {} for part in parts)
    for place, (metric, value) in enumerate(values.items()):
        if metric not in ratios:
            yield metric, place, number_or_none(value)
    for place, (metric, pair) in enumerate(ratios.items(), RATIOS):
        total, count = map(number_or_none, pair) if isinstance(pair, list) and len(pair) == 2 else (None, None)
        yield metric, place, total / count if total is not None and count else None


def number_or_none(value: Any) -> float | None:
    """None for what is no finite number."""
    with suppress(OverflowError):
        return float(value) if isinstance(value, int | float) and isfinite(value) else None
    return None


# ---- packing --------------------------------------------------------------------------------------------------------


def pack_block(run: Run) -> int:
    """Pack the metrics of the next events that are not packed yet, if there are enough; returns the number of events.

    One small transaction, in which `packed_seq` moves by compare-and-swap: of two that pack the same, one does.
    """
    before, first_attempt = _packed_seq(run), _first_attempt(run)
    events = run.events.filter(type="metrics", seq__gt=before).order_by("seq")
    rows = list(events.values_list(*_EVENT, "seq", Cast("payload", TextField()))[:BLOCK_EVENTS])
    if len(rows) < MIN_EVENTS:
        return 0
    latest = _latest_attempts(rows)
    all_series: dict[tuple[int, Key], MetricSeries] = {}
    places: dict[tuple[int, Key], int] = {}
    for attempt, step, agent, source, _, text in rows:
        if step is None or latest[agent, source][step] > attempt:
            continue
        for metric, place, value in event_numbers(text):
            key = attempt, (metric, agent, source)
            if key not in all_series:
                all_series[key] = MetricSeries(metric, agent, source)
            all_series[key].add(step, value)
            places[key] = max(places.get(key, 0), place)
    chunks = []
    for key, series in all_series.items():
        names = {"metric": series.metric, "agent": series.agent, "source": series.source}
        chunks.append(_fill(MetricChunk(run=run, attempt=key[0], place=places[key], **names), series.in_order()))
    last_attempt, *_, last_seq, _ = rows[-1]
    with transaction.atomic():
        if not Run.objects.filter(pk=run.pk, packed_seq=before).update(packed_seq=last_seq):
            return 0
        if last_attempt > first_attempt:
            _trim(run, latest)
        MetricChunk.objects.bulk_create(chunks)
    return len(rows)


def _fill(chunk: MetricChunk, series: MetricSeries) -> MetricChunk:
    chunk.first_step, chunk.last_step = series.steps[0], series.steps[-1]
    chunk.count, chunk.packed = len(series.steps), pack(series.steps, series.values)
    return chunk


def _trim(run: Run, latest: LatestAttempts) -> None:
    """Take the steps that later attempts recorded again out of earlier chunks."""
    for (agent, source), attempts in latest.items():
        earlier = MetricChunk.objects.filter(run=run, agent=agent, source=source, attempt__lt=max(attempts.values()))
        for chunk in earlier.filter(last_step__gte=min(attempts)):
            blob = (getattr(chunk, name) for name in _BLOB)
            series = MetricSeries(chunk.metric, agent, source, *unpack(*blob))
            rest = series.without_repeated(chunk.attempt, latest)
            if not rest.steps:
                chunk.delete()
            elif len(rest.steps) < len(series.steps):
                _fill(chunk, rest).save()
