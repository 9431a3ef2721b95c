"""Finds the rollouts that a filter asks for, a page at a time, in a bounded time however many there are.

Rows lie in the order of (attempt, step, seq), by index. They are looked through in pieces; when the time is over, the
search says how far it came, and goes on from there if it is asked again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q, QuerySet

from hacrl_web.insight.collaboration.step_summary import TAUGHT
from hacrl_web.insight.recorded_steps import Segment, segments
from hacrl_web.insight.rollouts.filter import CLIPS, Cursor, Filter
from hacrl_web.insight.rollouts.rescued_prompts import REWARDS, lesson_prompts
from hacrl_web.runs.models import RolloutSample, Run

PAGE_SIZE = 25
BUDGET_S = 0.25
PIECE = 8000  # rows looked through at once; fewer where texts are searched
TEXT_PIECE = 1000
_OF_ROLLOUT = ("step", "seq", "attempt", "prompt_id", "sample", "agent", "reward", "num_tokens")
_OF_LEARNER = (
    "step", "seq", "attempt", "prompt_id", "sample", "source", "reward", "source_num_tokens", "agent", "advantage",
    "sequence_ratio", "clip_side", "weight", "drop_reason",
)  # fmt: skip


class Taught(NamedTuple):
    """What a rollout taught one learner, in a line."""

    learner: str
    advantage: float | None
    sequence_ratio: float | None
    clip_side: str
    weight: float | None
    drop_reason: str | None


@dataclass(frozen=True)
class Hit:
    """A rollout that was found; where a learner was asked for, once for each learner."""

    step: int
    seq: int
    attempt: int
    prompt_id: str
    sample: int
    agent: str
    reward: float | None
    num_tokens: int | None
    taught: Taught | None = None

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.step, self.seq)

    @property
    def place(self) -> tuple[int, int, str]:
        """Its prompt group."""
        return self.step, self.attempt, self.prompt_id


@dataclass
class Page:
    """Hits in the order of the steps. after, before: where to go on; stopped_at: the step where time was over."""

    hits: list[Hit] = field(default_factory=list)
    after: Cursor | None = None
    before: Cursor | None = None
    stopped_at: int | None = None
    num_searched: int = 0


def hit_of(run: Run, seq: int) -> Hit | None:
    """The rollout, or what it taught a learner, that has this number among the run's events."""
    for rows, columns, make in (
        (run.rollouts, _OF_ROLLOUT, _of_rollout),
        (run.contributions, _OF_LEARNER, _of_learner),
    ):
        found = rows.filter(seq=seq).values_list(*columns).first()
        if found is not None:
            return make(found)
    return None


def first_that_taught(run: Run, step: int) -> Hit | None:
    """The first rollout of a step that moved a learner."""
    for segment in segments(run.contributions.all(), step, step):
        rows = run.contributions.filter(TAUGHT, attempt=segment.attempt, step=step)
        found = rows.order_by("seq").values_list(*_OF_LEARNER).first()
        if found is not None:
            return _of_learner(found)
    return None


def search(run: Run, asked: Filter, cursor: Cursor | None, *, is_backward: bool = False) -> Page:
    """A page of hits after the cursor, or before it; without one, from the first or the last step on."""
    rows: QuerySet[Any] = run.contributions.all() if asked.is_of_learner else run.rollouts.all()
    first, last = asked.steps or (0, None)
    found = segments(rows, first, last)
    page = Page()
    asked_rows = _of_lesson(run, found, asked)
    deadline = time.monotonic() + BUDGET_S
    edge = cursor
    for segment in reversed(found) if is_backward else found:
        for piece, end, count in _pieces(rows, segment, cursor, asked, is_backward):
            missing = PAGE_SIZE + 1 - len(page.hits)
            page.hits += _hits(_matching(run, piece.filter(asked_rows), asked), asked, missing)
            page.num_searched += count
            if len(page.hits) > PAGE_SIZE:
                break
            edge = end
            if time.monotonic() > deadline and end is not None:
                page.stopped_at = end.step
                break
        if len(page.hits) > PAGE_SIZE or page.stopped_at is not None:
            break
    has_more = len(page.hits) > PAGE_SIZE
    del page.hits[PAGE_SIZE:]
    onward = page.hits[-1].cursor if has_more else edge if page.stopped_at is not None else None
    back = page.hits[0].cursor if page.hits and cursor is not None else None
    page.after, page.before = (back, onward) if is_backward else (onward, back)
    if is_backward:
        page.hits.reverse()
    return page


def _of_lesson(run: Run, found: Sequence[Segment], asked: Filter) -> Q:
    """The rows of a lesson: those of the one step that the filter then names."""
    if not asked.lesson or not found:
        return Q()
    of_step = run.contributions.filter(attempt=found[0].attempt, step=found[0].first)
    prompts = lesson_prompts(of_step, asked.learner, asked.agent, asked.lesson)
    return REWARDS[asked.lesson] & Q(prompt_id__in=prompts)


def _pieces(
    rows: QuerySet[Any], segment: Segment, cursor: Cursor | None, asked: Filter, is_backward: bool
) -> Iterator[tuple[QuerySet[Any], Cursor | None, int]]:
    """Rows of a segment beyond the cursor, some at a time: (rows, their end, how many at most); None: the last ones."""
    order = ("-step", "-seq") if is_backward else ("step", "seq")
    size = TEXT_PIECE if asked.text else PIECE
    of_attempt = rows.filter(attempt=segment.attempt).order_by(*order)
    while True:
        left = of_attempt.filter(_between(segment, cursor, None, is_backward))
        ends = list(left.values_list("step", "seq")[size - 1 : size])
        if not ends:
            yield left, None, size
            return
        last = Cursor(*ends[0])
        yield of_attempt.filter(_between(segment, cursor, last, is_backward)), last, size
        cursor = last


def _between(segment: Segment, begin: Cursor | None, last: Cursor | None, is_backward: bool) -> Q:
    """Rows of a segment beyond `begin`, up to and with `last`. One range of steps: the index is entered at its ends."""
    low, high = (last, begin) if is_backward else (begin, last)
    first_step = segment.first if low is None else max(segment.first, low.step)
    last_step = segment.last if high is None else min(segment.last, high.step)
    found = Q(step__range=(first_step, last_step))
    if low is not None:
        found &= Q(step__gt=low.step) | (Q(seq__gte=low.seq) if is_backward else Q(seq__gt=low.seq))
    if high is not None:
        found &= Q(step__lt=high.step) | (Q(seq__lt=high.seq) if is_backward else Q(seq__lte=high.seq))
    return found


def _matching(run: Run, rows: QuerySet[Any], asked: Filter) -> QuerySet[Any]:
    """The rows that are as the filter asks."""
    source, tokens = ("source", "source_num_tokens") if asked.is_of_learner else ("agent", "num_tokens")
    wanted: dict[str, Any] = {"prompt_id": asked.prompt, source: asked.agent}
    if asked.is_of_learner:
        wanted |= {"agent": asked.learner, "clip_side": CLIPS.get(asked.clip, "")}
        ends = {"positive": "advantage__gt", "negative": "advantage__lt", "zero": "advantage"}
        if asked.sign:
            wanted[ends[asked.sign]] = 0.0
        if asked.clip:  # a row without a ratio lies on no side
            rows = rows.filter(sequence_ratio__isnull=False)
        for name, value in (("advantage__gte", asked.min_advantage), ("advantage__lte", asked.max_advantage)):
            if value is not None:
                wanted[name] = value
    rows = rows.filter(**{name: value for name, value in wanted.items() if value != ""})
    if asked.is_unscorable:
        rows = rows.filter(reward__isnull=True)
    elif asked.reward is not None:
        rows = rows.filter(reward__range=asked.reward)
    if asked.min_tokens is not None:
        rows = rows.filter(**{f"{tokens}__gte": asked.min_tokens})
    if asked.max_tokens is not None:
        rows = rows.filter(**{f"{tokens}__lte": asked.max_tokens})
    return _with_text(run, rows, asked) if asked.text else rows


def _with_text(run: Run, rows: QuerySet[Any], asked: Filter) -> QuerySet[Any]:
    holds = Q(completion__icontains=asked.text) | Q(prompt__icontains=asked.text)
    if not asked.is_of_learner:
        return rows.filter(holds)
    place = {name: OuterRef(name) for name in ("step", "prompt_id", "sample", "attempt")}
    sampled = RolloutSample.objects.filter(holds, run_id=run.pk, agent=OuterRef("source"), **place)
    return rows.filter(Exists(sampled))


def _hits(rows: QuerySet[Any], asked: Filter, count: int) -> list[Hit]:
    columns, make = (_OF_LEARNER, _of_learner) if asked.is_of_learner else (_OF_ROLLOUT, _of_rollout)
    return [make(row) for row in rows.values_list(*columns)[:count]]


def _of_rollout(row: tuple[Any, ...]) -> Hit:
    return Hit(*row)


def _of_learner(row: tuple[Any, ...]) -> Hit:
    return _of_rollout((*row[:8], Taught(*row[8:])))
