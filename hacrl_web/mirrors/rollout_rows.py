"""The recorded rollouts that a mirror sends with the numbers of a step: which ones, their texts, and the batches.

A row carries the rollouts of its step with a seq behind the row before it, so each is in one row. Of each agent they
are evenly spaced by seq: the same ones each time that the row is sent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Substr

from hacrl_web.mirrors.event_rows import EventRow
from hacrl_web.mirrors.models import Mirror
from hacrl_web.runs.models import RolloutSample, Run
from hacrl_web.web.visible import visible

MAX_ROLLOUTS = 20  # of each agent in a row
MAX_INTERVAL = 100_000  # steps
CHARACTERS = 2000  # of a text
CUT = " … (cut)"
ROW_BYTES = 2**20  # of rollouts in a row; those beyond are left out
BATCH_BYTES = 2**20  # of rollouts, after which a batch gets no further row
_TEXTS = ("prompt", "completion", "answer")
_NUMBER_BYTES = 200  # of a rollout without its texts


def evenly_chosen(seqs: list[int], most: int) -> list[int]:
    """At most `most` of them, evenly spaced, the first always."""
    count = min(most, len(seqs))
    return [seqs[place * len(seqs) // count] for place in range(count)]


def safe_text(text: str) -> str:
    """At most CHARACTERS, and CUT behind a longer text; control characters are written out, half surrogates are ?."""
    letters = visible(text[:CHARACTERS].encode("utf-8", "replace").decode())
    is_cut = max(len(text), len(letters)) > CHARACTERS
    return letters[:CHARACTERS] + CUT if is_cut else letters


class RowBatches:
    """Rows of a run in batches, each row with its rollouts.  after: seq up to which the destination has everything."""

    def __init__(self, mirror: Mirror, run: Run, rows: Iterable[EventRow], after: int) -> None:
        self._mirror, self._run = mirror, run
        self._rows, self._after = deque(rows), after

    def take(self, size: int) -> list[EventRow]:
        """The next rows, at most `size`; empty at the end. Its rollouts have at most BATCH_BYTES + ROW_BYTES."""
        batch: list[EventRow] = []
        num_bytes = 0
        while self._rows and len(batch) < size and num_bytes < BATCH_BYTES:
            row = self._rows.popleft()
            if self._mirror.rollouts and row.step % self._mirror.rollout_interval == 0:
                row.rollouts = self._rollouts(row)
                num_bytes += sum(map(_num_bytes, row.rollouts))
            self._after = row.seq
            batch.append(row)
        return batch

    def _rollouts(self, row: EventRow) -> list[dict[str, Any]]:
        """Ordered by seq. Those whose texts are no longer kept are left out."""
        of_row = RolloutSample.objects.filter(run=self._run, attempt=row.attempt, step=row.step)
        of_row = of_row.filter(seq__gt=self._after, seq__lte=row.seq).order_by("seq")
        by_agent: dict[str, list[int]] = {}
        for seq, agent in of_row.values_list("seq", "agent"):
            by_agent.setdefault(agent, []).append(seq)
        choices = [evenly_chosen(seqs, self._mirror.rollouts) for seqs in by_agent.values()]
        texts = _read(of_row, [seq for seqs in choices for seq in seqs])
        rollouts, rest = {}, ROW_BYTES
        for place in range(self._mirror.rollouts):  # of each agent the first one, then of each the second
            for seq in [seqs[place] for seqs in choices if place < len(seqs)]:
                rest -= _num_bytes(texts[seq]) if seq in texts else 0
                if seq in texts and rest >= 0:
                    rollouts[seq] = texts[seq]
        return [rollouts[seq] for seq in sorted(rollouts)]


def _read(rollouts: QuerySet[RolloutSample], seqs: list[int]) -> dict[int, dict[str, Any]]:
    """By seq, in the form of workers.mirrors.messages.Row.rollouts."""
    first = {f"first_{name}": Substr(name, 1, CHARACTERS + 1) for name in _TEXTS}  # a text may have megabytes
    columns = ("seq", "step", "agent", "reward", "finish_reason", "num_tokens")
    records = rollouts.filter(seq__in=seqs).exclude(prompt="").annotate(**first).values(*columns, *first)
    return {record["seq"]: _rollout(record) for record in records}


def _rollout(record: dict[str, Any]) -> dict[str, Any]:
    texts = {name: safe_text(record[f"first_{name}"]) for name in _TEXTS}
    reward = record["reward"]
    return {
        "step": record["step"],
        "agent": record["agent"],
        **texts,
        "reward": reward if reward is not None and math.isfinite(reward) else None,
        "finish_reason": record["finish_reason"],
        "num_tokens": record["num_tokens"],
    }


def _num_bytes(rollout: dict[str, Any]) -> int:
    return _NUMBER_BYTES + sum(len(rollout[name].encode()) for name in _TEXTS)
