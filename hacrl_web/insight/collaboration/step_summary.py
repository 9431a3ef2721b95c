"""Sums over the contribution rows of a recorded step, by pair and by the outcome of each row.

The Collaboration tab shows them, except in its histograms. They are cached: rows are never changed, and when a resumed
attempt repeats a step, its rows have another attempt number.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from threading import Lock
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from hacrl_web.insight.recorded_steps import segments
from hacrl_web.insight.rescued_prompts import CORRECT, NOT_CORRECT, OF_STEP, TAUGHT, is_avoided, is_rescued
from hacrl_web.runs.models import Contribution, RolloutSample, Run
from hacrl_web.runs.telemetry.ended_run_cache import cached_by_run

CACHED_STEPS = 256  # at most 0.1 MB each, with 8 agents
CACHED_RUNS = 32
ROWS_AT_ONCE = 20_000  # of several short steps of a run
IN_LOSS = Q(drop_reason__isnull=True) | Q(drop_reason="")
POSITIVE, NEGATIVE = Q(advantage__gt=0), Q(advantage__lt=0)
EVALUATED = Q(sequence_ratio__isnull=False)
OUTSIDE = Q(clip_side="lower") | Q(clip_side="upper")
# A row has the first outcome that fits; the rest (a ratio at max_log_ratio, a number that is not finite) is "other".
OUTCOMES = {
    "used": IN_LOSS & TAUGHT,
    "zero": IN_LOSS & ~TAUGHT & Q(advantage=0),
    "clipped": IN_LOSS & ~TAUGHT & OUTSIDE & (POSITIVE | NEGATIVE),
    "dropped": ~IN_LOSS,
}


Pair = tuple[str, str]  # learner, source


@dataclass
class Summary:
    """The sums of one or several steps, by name.

    pairs: _COLUMNS of a learner's rows from a source.  dropped: rows and tokens, by pair and reason.
    prompts: all, rescued and avoided ones, and those of them on which the source taught.
    generated: rollouts of an agent, unscorable ones included.
    factors: highest omega, P of the learner, P of the source, and lowest omega, of a single step.
    """

    pairs: dict[Pair, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    dropped: dict[tuple[str, str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    prompts: dict[Pair, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    generated: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    factors: dict[Pair, tuple[float | None, ...]] = field(default_factory=dict)

    def add(self, other: Summary) -> None:
        for name in ("pairs", "dropped", "prompts", "generated"):
            for key, sums in getattr(other, name).items():
                getattr(self, name)[key].update(sums)


# Each step is looked up in the index: a million rows are not read to find a few hundred steps.
_STEPS = """
WITH RECURSIVE recorded(step) AS (
  SELECT MIN(step) FROM runs_contribution WHERE run_id = %(run)s AND attempt = %(attempt)s AND step >= %(first)s
  UNION ALL
  SELECT (SELECT MIN(step) FROM runs_contribution
          WHERE run_id = %(run)s AND attempt = %(attempt)s AND step > recorded.step)
  FROM recorded WHERE recorded.step IS NOT NULL
)
SELECT step FROM recorded WHERE step <= %(last)s
"""


def recorded_steps(run: Run) -> dict[int, int]:
    """Step -> attempt for the steps with contributions, in order; without the current step of a live run."""
    return cached_by_run("steps", [run], lambda runs: {one.pk: _recorded_steps(one) for one in runs})[run.pk]


def _recorded_steps(run: Run) -> dict[int, int]:
    attempts: dict[int, int] = {}
    run_key = Run._meta.pk.get_db_prep_value(run.pk, connection)
    with connection.cursor() as cursor:
        for segment in segments(run.contributions.all(), last=None if run.is_terminal else run.step):
            parameters = {"run": run_key, "attempt": segment.attempt, "first": segment.first, "last": segment.last}
            cursor.execute(_STEPS, parameters)
            attempts |= {step: segment.attempt for (step,) in cursor.fetchall()}
    return attempts


def summary_of(run: Run, steps: dict[int, int], step: int) -> Summary:
    """The sums of a recorded step, shared: do not change them. steps: from recorded_steps."""
    rows = run.contributions.filter(attempt=steps[step], step=step).count()
    return _step_summary(run.pk, run.import_id, step, steps[step], rows)


@lru_cache(maxsize=CACHED_STEPS)
def _step_summary(run_id: UUID, import_id: str, step: int, attempt: int, rows: int) -> Summary:
    """rows: their number; a step with more rows has other sums."""
    return _sums(run_id=run_id, attempt=attempt, step=step)


def _sums(**place: Any) -> Summary:
    """The sums of one step, or of several steps of one attempt."""
    sums = Summary()
    contributions = Contribution.objects.filter(OF_STEP, **place).order_by()
    _add_pairs(sums, contributions)
    _add_prompts(sums, contributions)
    _add_generated(sums, RolloutSample.objects.filter(**place).order_by())
    return sums


# Rows of old versions have the length in the learner's tokens only.
_TOKENS = Coalesce("source_num_tokens", "num_tokens")


def _columns() -> dict[str, Any]:
    """The sums of a pair's rows. Tokens are the source's; positive and negative are signs of the advantage."""
    columns: dict[str, Any] = {
        "rows": Count("pk"),
        "tokens": Sum(_TOKENS),
    }
    for name, outcome in OUTCOMES.items():
        columns |= {name: Count("pk", filter=outcome), f"{name}_tokens": Sum(_TOKENS, filter=outcome)}
    for sign, of_sign in (("positive", POSITIVE), ("negative", NEGATIVE)):
        columns |= {
            f"weight_{sign}": Sum("weight", filter=IN_LOSS & of_sign),
            f"lost_{sign}": Count("pk", filter=OUTCOMES["clipped"] & of_sign),
            f"evaluated_{sign}": Count("pk", filter=EVALUATED & of_sign),
            f"lower_{sign}": Count("pk", filter=EVALUATED & of_sign & Q(clip_side="lower")),
            f"upper_{sign}": Count("pk", filter=EVALUATED & of_sign & Q(clip_side="upper")),
        }
    not_correct = NOT_CORRECT | Q(reward__isnull=True)
    return columns | {"incorrect_positive": Count("pk", filter=EVALUATED & POSITIVE & not_correct)}


_COLUMNS = _columns()


def _add_pairs(summary: Summary, of_step: QuerySet[Contribution]) -> None:
    columns = {"factor": "omega", "own": "capability", "theirs": "source_capability"}
    factors: dict[str, Max | Min] = {name: Max(column) for name, column in columns.items()}
    factors["lowest"] = Min("omega")
    for row in of_step.values("agent", "source").annotate(**_COLUMNS, **factors):
        pair = (row.pop("agent"), row.pop("source"))
        summary.factors[pair] = tuple(row.pop(name) for name in factors)
        summary.pairs[pair] = sums = Counter({name: value or 0 for name, value in row.items()})
        sums["weight_negative"] *= -1  # weight has the sign of the advantage
        if sums["dropped"]:
            reasons = of_step.filter(~IN_LOSS, agent=pair[0], source=pair[1]).values_list("drop_reason")
            for reason, rows, tokens in reasons.annotate(rows=Count("pk"), tokens=Sum(_TOKENS)):
                summary.dropped[(*pair, reason)] = Counter(rows=rows, tokens=tokens or 0)


def _add_prompts(summary: Summary, of_step: QuerySet[Contribution]) -> None:
    rows = list(
        of_step.values_list("step", "agent", "source", "prompt_id").annotate(
            low=Min("reward"),
            high=Max("reward"),
            correct=Count("pk", filter=TAUGHT & CORRECT),
            incorrect=Count("pk", filter=TAUGHT & NOT_CORRECT),
        )
    )
    # Every agent takes in all of its own scored rollouts. Rows of old versions have no rewards.
    own = {
        (agent, step, prompt): (low, high)
        for step, agent, source, prompt, low, high, _, _ in rows
        if agent == source and low is not None
    }
    num_taught = {(agent, source, step, prompt): counts for step, agent, source, prompt, _, _, *counts in rows}
    shares = any(agent != source for _, agent, source, *_ in rows)
    agents = sorted({agent for _, agent, source, *_ in rows if agent == source}) if shares else []
    for (learner, *prompt), rewards in own.items():
        for source in agents:
            if source == learner:
                continue
            counts = summary.prompts[learner, source]
            counts["prompts"] += 1
            if (peer := own.get((source, *prompt))) is None:
                continue
            correct, incorrect = num_taught.get((learner, source, *prompt), (0, 0))
            if is_rescued(rewards, peer):
                counts["rescued"] += 1
                counts["rescued_taught"] += correct > 0
            elif is_avoided(rewards, peer):
                counts["avoided"] += 1
                counts["avoided_taught"] += incorrect > 0


def _add_generated(summary: Summary, of_step: QuerySet[RolloutSample]) -> None:
    scored = Q(reward__isnull=False)
    rows = of_step.values("agent").annotate(
        rollouts=Count("pk"),
        tokens=Sum("num_tokens"),
        verified=Count("pk", filter=scored),
        verified_tokens=Sum("num_tokens", filter=scored),
        correct=Count("pk", filter=CORRECT),
    )
    for row in rows:
        agent = row.pop("agent")
        summary.generated[agent] = Counter({name: count or 0 for name, count in row.items()})


@dataclass
class _Total:
    """The sum over a run's steps so far, and the attempt of each step."""

    steps: dict[int, int] = field(default_factory=dict)
    summary: Summary = field(default_factory=Summary)


# By run, import, and the last event of a run that has ended: before it, its import may still have been storing others.
_totals: OrderedDict[tuple[UUID, str, int | None], _Total] = OrderedDict()
_lock = Lock()


def run_summary(run: Run, steps: dict[int, int], budget_s: float) -> tuple[Summary, int]:
    """The sums over the recorded steps, and how many steps they hold: as many as the time allows, at least one more.

    steps: from recorded_steps. The next call continues.
    """
    with _lock:
        key = (run.pk, run.import_id, run.last_seq if run.is_terminal else None)
        total = _totals.get(key)
        if total is None or any(steps.get(step) != attempt for step, attempt in total.steps.items()):
            total = _Total()
        _totals[key] = total
        _totals.move_to_end(key)
        while len(_totals) > CACHED_RUNS:
            _totals.popitem(last=False)
        end = time.monotonic() + budget_s
        missing = [step for step in steps if step not in total.steps]
        while missing:
            batch = _next_steps(run, steps, missing)
            place = {"attempt": steps[batch[0]], "step__range": (batch[0], batch[-1])}
            total.summary.add(summary_of(run, steps, batch[0]) if len(batch) == 1 else _sums(run_id=run.pk, **place))
            total.steps |= {step: steps[step] for step in batch}
            missing = missing[len(batch) :]
            if time.monotonic() > end:
                break
        copied = Summary()
        copied.add(total.summary)
        return copied, len(total.steps)


def _next_steps(run: Run, steps: dict[int, int], missing: list[int]) -> list[int]:
    """The first steps of one attempt that have ROWS_AT_ONCE rows together: one query for many short steps."""
    rows = run.contributions.filter(attempt=steps[missing[0]], step=missing[0]).count()
    few = missing[: max(1, ROWS_AT_ONCE // max(1, rows))]
    return list(takewhile(lambda step: steps[step] == steps[missing[0]], few))
