"""The first look at a recorded step: its contribution rows, added up by what became of them.

Everything on the Collaboration tab but its histograms is made of these sums. They are kept in memory under the number
of the step's rows: rows are only ever added (a resumed attempt may repeat a step), so another number means other sums.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field, fields
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Case, CharField, Count, IntegerField, Max, Min, Q, Sum, Value, When
from django.db.models.functions import Abs, Coalesce

from hacrl_web.runs.models import Contribution, RolloutSample, Run

USED, ZERO, CLIPPED, DROPPED, OTHER = "used", "zero", "clipped", "dropped", "other"
KEPT_STEPS = 128  # at most 0.2 MB each, with 8 agents
KEPT_RUNS = 32


class Kind(NamedTuple):
    """Rows that had the same fate. side: lower, none or upper; sign: of the advantage; is_evaluated: it has an s."""

    learner: str
    source: str
    outcome: str
    reason: str  # why it was dropped
    side: str
    sign: int
    is_evaluated: bool


@dataclass
class Sums:
    """Over the rows of one kind. tokens: the source's. lowest: smallest reward among them."""

    rows: int = 0
    tokens: int = 0
    weight: float = 0.0  # sum of |weight|
    lowest: float | None = None

    def add(self, other: Sums) -> None:
        self.rows += other.rows
        self.tokens += other.tokens
        self.weight += other.weight
        known = [value for value in (self.lowest, other.lowest) if value is not None]
        self.lowest = min(known) if known else None


class Counts:
    """Whole numbers that add up by name."""

    def add(self, other: Any) -> None:
        for column in fields(self):  # type: ignore[arg-type]
            setattr(self, column.name, getattr(self, column.name) + getattr(other, column.name))


@dataclass
class Lessons(Counts):
    """Over the prompts of one ordered pair; the definitions stand in docs/metrics.md."""

    prompts: int = 0
    rescue: int = 0
    rescue_used: int = 0
    warn: int = 0
    warn_used: int = 0


@dataclass
class Generated(Counts):
    """Over all rollouts of one agent, those included that could not be scored."""

    rollouts: int = 0
    tokens: int = 0
    verified: int = 0
    verified_tokens: int = 0
    right: int = 0


@dataclass
class Summary:
    """One step, or several added up. factors: (omega, P of the learner, P of the source) by pair, of one step only."""

    kinds: dict[Kind, Sums] = field(default_factory=dict)
    lessons: dict[tuple[str, str], Lessons] = field(default_factory=dict)
    generated: dict[str, Generated] = field(default_factory=dict)
    factors: dict[tuple[str, str], tuple[float | None, ...]] = field(default_factory=dict)

    def add(self, other: Summary) -> None:
        for kind, sums in other.kinds.items():
            self.kinds.setdefault(kind, Sums()).add(sums)
        for pair, lessons in other.lessons.items():
            self.lessons.setdefault(pair, Lessons()).add(lessons)
        for agent, generated in other.generated.items():
            self.generated.setdefault(agent, Generated()).add(generated)


def recorded_steps(run: Run) -> dict[int, int]:
    """Step -> rows, of the steps with contributions, in order; without those that a live run is still at."""
    rows = run.contributions.order_by("step")
    if not run.is_terminal:
        rows = rows.filter(step__lte=run.step)
    return dict(rows.values_list("step").annotate(Count("pk")))


@lru_cache(maxsize=KEPT_STEPS)
def step_summary(run_id: UUID, step: int, rows: int) -> Summary:
    """The sums of one step, not to be changed. rows: how many it has, as told by recorded_steps."""
    found = Summary()
    _add_kinds(found, run_id, step)
    _add_lessons(found, run_id, step)
    _add_generated(found, run_id, step)
    return found


def _latest(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of the highest attempt, which stands first in each."""
    newest = max((row[0] for row in rows), default=0)
    return [row[1:] for row in rows if row[0] == newest]


def _add_kinds(found: Summary, run_id: UUID, step: int) -> None:
    word = {"output_field": CharField()}
    whole = {"output_field": IntegerField()}
    rows = (
        Contribution.objects.filter(run_id=run_id, step=step)
        .order_by()
        .annotate(
            outcome=Case(
                When(drop_reason__gt="", then=Value(DROPPED)),
                When(Q(weight__gt=0) | Q(weight__lt=0), then=Value(USED)),
                When(advantage=0, then=Value(ZERO)),
                When(clip_side__in=("lower", "upper"), then=Value(CLIPPED)),
                default=Value(OTHER),
                **word,
            ),
            sign=Case(When(advantage__gt=0, then=1), When(advantage__lt=0, then=-1), default=0, **whole),
            evaluated=Case(When(sequence_ratio__isnull=False, then=1), default=0, **whole),
        )
        .values_list("attempt", "agent", "source", "outcome", "drop_reason", "clip_side", "sign", "evaluated")
        .annotate(
            row_count=Count("pk"),
            token_sum=Sum(Coalesce("source_num_tokens", "num_tokens")),  # older rows know the learner's only
            weight_sum=Sum(Abs("weight")),
            lowest=Min("reward"),
            factor=Max("omega"),
            own=Max("capability"),
            theirs=Max("source_capability"),
        )
    )
    for learner, source, outcome, reason, side, sign, evaluated, *sums in _latest(list(rows)):
        count, tokens, weight, lowest, *factors = sums
        kind = Kind(learner, source, outcome, reason or "", side, sign, bool(evaluated))
        found.kinds.setdefault(kind, Sums()).add(Sums(count, tokens or 0, weight or 0.0, lowest))
        found.factors[learner, source] = tuple(factors)


def _add_lessons(found: Summary, run_id: UUID, step: int) -> None:
    """Rescue and warn of each pair, prompt by prompt."""
    taught = Q(weight__gt=0) | Q(weight__lt=0)
    rows = _latest(
        list(
            Contribution.objects.filter(run_id=run_id, step=step)
            .order_by()
            .values_list("attempt", "agent", "source", "prompt_id")
            .annotate(
                low=Min("reward"),
                high=Max("reward"),
                right=Count("pk", filter=taught & Q(reward__gt=0)),
                wrong=Count("pk", filter=taught & Q(reward__lte=0)),
            )
        )
    )
    # Every agent hears all of its own scored rollouts: smallest and largest reward of each of its groups.
    own = {(learner, prompt): (low, high) for learner, source, prompt, low, high, *_ in rows if learner == source}
    used = {(learner, source, prompt): (right, wrong) for learner, source, prompt, _, _, right, wrong in rows}
    agents = sorted({learner for learner, source, *_ in rows if learner != source})
    for (learner, prompt), (low, high) in own.items():
        if low is None:
            continue  # rows of a version that did not record rewards
        for source in agents:
            if source == learner:
                continue
            lessons = found.lessons.setdefault((learner, source), Lessons())
            lessons.prompts += 1
            least, best = own.get((source, prompt), (None, None))
            if least is None or best is None:
                continue
            right, wrong = used.get((learner, source, prompt), (0, 0))
            if high <= 0 < best:
                lessons.rescue += 1
                lessons.rescue_used += right > 0
            elif low > 0 >= least:
                lessons.warn += 1
                lessons.warn_used += wrong > 0


def _add_generated(found: Summary, run_id: UUID, step: int) -> None:
    scored = Q(reward__isnull=False)
    rows = (
        RolloutSample.objects.filter(run_id=run_id, step=step)
        .order_by()
        .values_list("attempt", "agent")
        .annotate(
            made=Count("pk"),
            tokens=Sum("num_tokens"),
            verified=Count("pk", filter=scored),
            verified_tokens=Sum("num_tokens", filter=scored),
            right=Count("pk", filter=Q(reward__gt=0)),
        )
    )
    for agent, *counts in _latest(list(rows)):
        found.generated[agent] = Generated(*(count or 0 for count in counts))


@dataclass
class _Total:
    """A run's steps added up so far, and how many rows each had."""

    steps: dict[int, int] = field(default_factory=dict)
    summary: Summary = field(default_factory=Summary)


_totals: OrderedDict[UUID, _Total] = OrderedDict()
_lock = Lock()


def run_summary(run: Run, steps: dict[int, int], budget_s: float) -> tuple[Summary, int]:
    """The sums over the recorded steps, and how many of them are in: as many as the time allows, at least one more.

    steps: from recorded_steps. Asked again, it goes on where it was.
    """
    with _lock:
        total = _totals.get(run.pk)
        if total is None or any(steps.get(step) != rows for step, rows in total.steps.items()):
            total = _Total()
        _totals[run.pk] = total
        _totals.move_to_end(run.pk)
        while len(_totals) > KEPT_RUNS:
            _totals.popitem(last=False)
        end = time.monotonic() + budget_s
        for step, rows in steps.items():
            if step in total.steps:
                continue
            total.summary.add(step_summary(run.pk, step, rows))
            total.steps[step] = rows
            if time.monotonic() > end:
                break
        copied = Summary()
        copied.add(total.summary)
        return copied, len(total.steps)
