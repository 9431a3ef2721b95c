"""What a destination is told: the facts of a run, and its stored numbers after a cursor, as rows.

A row is one step of one attempt, complete before it is sent. It carries the recorded rollouts of its step with a seq
behind the row before it, so each is in one row.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import TextField
from django.db.models.functions import Cast, Substr

from hacrl_web.mirrors.models import Mirror
from hacrl_web.runs.models import RolloutSample, Run, TelemetryEvent
from hacrl_web.runs.telemetry.metric_series import event_numbers, number_or_none
from hacrl_web.web.visible import visible
from workers.contract.mirrored_rows import Row

EVENTS_AT_ONCE = 2000
ROWS_AT_ONCE = 256
TYPES = ("metrics", "evaluation", "progress")
MAX_KEY = 240
CHARACTERS = 2000  # of a rollout's text
CUT = " … (cut)"
ROLLOUT_BYTES = 2**20  # of a row's rollouts; those beyond are left out
_SAFE = re.compile(r"[^A-Za-z0-9_\-./ @]")
_TEXTS = ("prompt", "completion", "answer")
_COLUMNS = ("seq", "step", "agent", "reward", "finish_reason", "num_tokens")


def facts_of(run: Run) -> dict[str, Any]:
    """The fields of workers.contract.mirrored_rows.MirroredRun."""
    return {
        "id": str(run.pk),
        "name": run.name,
        "project": str(run.project),
        "url": f"{settings.PUBLIC_URL}{run.get_absolute_url()}" if settings.PUBLIC_URL else "",
        "tags": run.tag_list,
        "created": run.created_at.timestamp(),
        "settings": dict(_flat(run.spec, "")),
    }


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Settings by dotted path; lists of plain values as text."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value if isinstance(value, bool | int | float | str) else str(value)


def series_key(metric: str, agent: str, source: str = "", benchmark: str = "") -> str:
    """The name of a series elsewhere: agent/metric, of a pair agent/metric/from source.

    Characters that some destinations do not accept become _; then a short hash keeps names apart.
    """
    parts = [part for part in (agent, metric, f"from {source}" if source else "", benchmark) if part]
    name = "/".join(parts)
    safe = _SAFE.sub("_", name)[:MAX_KEY].strip()
    if safe == name:
        return safe
    return f"{safe[: MAX_KEY - 9]}.{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@dataclass
class CompleteRows:
    """rows: complete ones, oldest first.  seq: events up to it are in them, or hold no numbers."""

    rows: list[Row]
    seq: int
    is_last: bool


def read_rows(run: Run, after: int) -> CompleteRows:
    """The next rows after event `after`. A step ends with its progress, with the next step, or with the run."""
    events = TelemetryEvent.objects.filter(run=run, seq__gt=after, type__in=TYPES).order_by("seq")
    columns = ("seq", "attempt", "type", "step", "agent", "source", "time", Cast("payload", TextField()))
    records = list(events.values_list(*columns)[:EVENTS_AT_ONCE])
    is_last = len(records) < EVENTS_AT_ONCE
    rows: list[Row] = []
    row: Row | None = None
    end = after
    for seq, attempt, kind, step, agent, source, time, text in records:
        if row is not None and (row.attempt, row.step) != (attempt, step):
            rows.append(row)
            end, row = row.seq, None
        if kind == "progress" or step is None:
            if row is not None:
                row.seq = seq
                rows.append(row)
            end, row = seq, None
            continue
        row = row or Row(seq, time, step, attempt, {})
        row.seq, row.time = seq, time
        row.values |= _values(kind, agent, source, text, run)
    if row is not None and ((run.is_terminal and is_last) or (not is_last and not rows)):
        rows.append(row)
        end = row.seq
    return CompleteRows([one for one in rows if one.values], end, is_last)


def _values(kind: str, agent: str, source: str, text: str, run: Run) -> dict[str, float]:
    if kind == "metrics":
        pairs = [(series_key(metric, agent, source), value) for metric, _, value in event_numbers(text)]
    else:
        payload = json.loads(text)
        benchmark = str(payload.get("benchmark") or "")
        name = benchmark if benchmark in run.further_benchmarks else ""
        pairs = [(series_key(str(payload.get("metric")), agent, "", name), number_or_none(payload.get("value")))]
    return {name: value for name, value in pairs if value is not None and math.isfinite(value)}


def batches(mirror: Mirror, run: Run, rows: list[Row], after: int) -> Iterator[list[Row]]:
    """Rows with their rollouts, one and then more at once: a slow destination gets some too.

    A row with rollouts ends its batch.  after: seq up to which the destination has everything.
    """
    batch: list[Row] = []
    size = 1
    for row in rows:
        if mirror.rollouts and row.step % mirror.rollout_interval == 0:
            row.rollouts = _rollouts(mirror, run, row, after)
        after = row.seq
        batch.append(row)
        if len(batch) >= size or row.rollouts:
            yield batch
            batch, size = [], min(2 * size, ROWS_AT_ONCE)
    if batch:
        yield batch


def _rollouts(mirror: Mirror, run: Run, row: Row, after: int) -> list[dict[str, Any]]:
    """Some rollouts of each agent, evenly spaced by seq: the same ones each time that the row is sent.

    Those whose texts are no longer kept are left out.
    """
    of_row = RolloutSample.objects.filter(run=run, attempt=row.attempt, step=row.step, seq__gt=after, seq__lte=row.seq)
    by_agent: dict[str, list[int]] = {}
    for seq, agent in of_row.order_by("seq").values_list("seq", "agent"):
        by_agent.setdefault(agent, []).append(seq)
    places = {
        seq: place for seqs in by_agent.values() for place, seq in enumerate(evenly_chosen(seqs, mirror.rollouts))
    }
    first = {f"first_{name}": Substr(name, 1, CHARACTERS + 1) for name in _TEXTS}  # a text may have megabytes
    records = of_row.filter(seq__in=list(places)).exclude(prompt="").annotate(**first).values(*_COLUMNS, *first)
    rollouts, rest = {}, ROLLOUT_BYTES
    for record in sorted(records, key=lambda one: (places[one["seq"]], one["seq"])):  # the first of each agent first
        seq, reward = record.pop("seq"), record["reward"]
        record |= {name: safe_text(record.pop(f"first_{name}")) for name in _TEXTS}
        record["reward"] = reward if reward is not None and math.isfinite(reward) else None
        rest -= len(json.dumps(record, ensure_ascii=False).encode())
        if rest >= 0:
            rollouts[seq] = record
    return [rollouts[seq] for seq in sorted(rollouts)]


def evenly_chosen(seqs: list[int], most: int) -> list[int]:
    """At most `most` of them, evenly spaced, the first always."""
    count = min(most, len(seqs))
    return [seqs[place * len(seqs) // count] for place in range(count)]


def safe_text(text: str) -> str:
    """At most CHARACTERS, and CUT behind a longer text; control characters are written out, half surrogates are ?."""
    letters = visible(text[:CHARACTERS].encode("utf-8", "replace").decode())
    is_cut = max(len(text), len(letters)) > CHARACTERS
    return letters[:CHARACTERS] + CUT if is_cut else letters
