"""Search for rollouts by a filter: a page at a time, in bounded time however many rows there are.

Rows are read in the order of their index (attempt, step, seq), in pieces. When the time is over, the search returns
the step that it reached; the next one continues from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Case, F, FloatField, Max, Min, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Abs

from hacrl_web.insight.recorded_steps import Segment, segments
from hacrl_web.insight.rescued_prompts import OF_STEP, TAUGHT, is_avoided, is_rescued
from hacrl_web.insight.rollouts.filter import CLIPS, PROMPT_KINDS, SIGNS, PageCursor, RolloutFilter, read_cursor
from hacrl_web.runs.models import RolloutSample, Run
from hacrl_web.web.schemas import EVERY_FIELD

PAGE_SIZE = 25
BUDGET_S = 0.25
PIECE = 8000  # rows read at once; fewer if texts are searched
TEXT_PIECE = 1000
REWARD_TOLERANCE = 1e-6
_OF_ROLLOUT = ("step", "seq", "attempt", "prompt_id", "sample", "agent", "reward", "num_tokens", "rewards")
_OF_LEARNER = (
    "step", "seq", "attempt", "prompt_id", "sample", "source", "reward", "source_num_tokens", "agent", "advantage",
    "sequence_ratio", "clip_side", "weight", "drop_reason",
)  # fmt: skip


@dataclass(frozen=True)
class ContributionSummary:
    """The contribution of a rollout to one learner, in short."""

    learner: str
    advantage: float | None
    sequence_ratio: float | None
    clip_side: str
    weight: float | None
    drop_reason: str | None


@dataclass(frozen=True)
class RolloutHit:
    """A rollout that matches; with `taught` if the filter is about learners, once for each learner and use.

    rewards: by name, where several make the total; not with `taught`.
    """

    __pydantic_config__ = EVERY_FIELD
    step: int
    seq: int
    attempt: int
    prompt_id: str
    sample: int
    agent: str
    reward: float | None
    num_tokens: int | None
    taught: ContributionSummary | None = None
    rewards: dict[str, float] | None = None

    @property
    def cursor(self) -> PageCursor:
        return PageCursor(self.step, self.seq)

    @property
    def place(self) -> tuple[int, int, str]:
        """The key of its prompt group."""
        return self.step, self.attempt, self.prompt_id


@dataclass
class RolloutPage:
    """Hits in the order of steps, or sorted. after, before: where to continue.  stopped_at: the step at which time ran
    out.  sorted_from: the first step that a sort covers, if it leaves out earlier ones.
    """

    hits: list[RolloutHit] = field(default_factory=list)
    after: PageCursor | None = None
    before: PageCursor | None = None
    stopped_at: int | None = None
    num_searched: int = 0
    sorted_from: int | None = None


def hit_of(run: Run, seq: int) -> RolloutHit | None:
    """The rollout or contribution with this number among the run's events."""
    hits = _hits(run.rollouts.filter(seq=seq), 1) or _hits(
        run.contributions.filter(OF_STEP, seq=seq), 1, of_learner=True
    )
    return hits[0] if hits else None


def first_that_taught(run: Run, step: int) -> RolloutHit | None:
    """The first rollout of a step with a weight for a learner."""
    for segment in segments(run.contributions.all(), step, step):
        rows = run.contributions.filter(OF_STEP, TAUGHT, attempt=segment.attempt, step=step).order_by("seq")
        if hits := _hits(rows, 1, of_learner=True):
            return hits[0]
    return None


def search_rollouts(run: Run, rollout_filter: RolloutFilter) -> RolloutPage:
    """The page of hits before or after the filter's cursor; without one, from the first step on."""
    return _sorted_page(run, rollout_filter) if rollout_filter.sort else _page_in_order(run, rollout_filter)


def _sorted_page(run: Run, rollout_filter: RolloutFilter) -> RolloutPage:
    """A page of sorted hits. The `seq` of its cursors is the number of hits before them."""
    rows = run.contributions.filter(OF_STEP)
    parts = segments(rows, *(rollout_filter.steps or (0, None)))
    if not parts:
        return RolloutPage()
    covered, first_step = newest_rows(rows, parts, TEXTS_SORTED if rollout_filter.text else ROWS_SORTED)
    matching = matching_rows(run, rows.filter(covered, on_rescued_prompts(run, parts, rollout_filter)), rollout_filter)
    ordered = matching.order_by(sort_value(rollout_filter.sort).desc(nulls_last=True), "step", "seq")
    begin = rollout_filter.begin(PAGE_SIZE)
    hits = _hits(ordered, PAGE_SIZE + 1, of_learner=True, begin=begin)
    return RolloutPage(
        hits[:PAGE_SIZE],
        after=PageCursor(0, begin + PAGE_SIZE) if len(hits) > PAGE_SIZE else None,
        before=PageCursor(0, begin) if begin else None,
        sorted_from=first_step if first_step > parts[0].first else None,
    )


def _page_in_order(run: Run, rollout_filter: RolloutFilter) -> RolloutPage:
    rows: QuerySet[Any] = run.contributions.filter(OF_STEP) if rollout_filter.is_of_learner else run.rollouts.all()
    is_backward = bool(rollout_filter.before)
    cursor = read_cursor(rollout_filter.before or rollout_filter.after)
    first, last = rollout_filter.steps or (0, None)
    parts = segments(rows, first, last)
    page = RolloutPage()
    on_prompts = on_rescued_prompts(run, parts, rollout_filter)
    deadline = time.monotonic() + BUDGET_S
    edge = cursor
    ordered = reversed(parts) if is_backward else parts
    pieces = (piece for one in ordered for piece in _pieces(rows, one, cursor, rollout_filter, is_backward))
    for piece, end, count in pieces:
        matching = matching_rows(run, piece.filter(on_prompts), rollout_filter)
        page.hits += _hits(matching, PAGE_SIZE + 1 - len(page.hits), of_learner=rollout_filter.is_of_learner)
        page.num_searched += count
        if len(page.hits) > PAGE_SIZE:
            break
        edge = end
        if time.monotonic() > deadline and end is not None:
            page.stopped_at = end.step
            break
    has_more = len(page.hits) > PAGE_SIZE
    del page.hits[PAGE_SIZE:]
    onward = page.hits[-1].cursor if has_more else edge if page.stopped_at is not None else None
    back = page.hits[0].cursor if page.hits and cursor is not None else None
    page.after, page.before = (back, onward) if is_backward else (onward, back)
    if is_backward:
        page.hits.reverse()
    return page


def on_rescued_prompts(run: Run, parts: Sequence[Segment], rollout_filter: RolloutFilter) -> Q:
    """The source's rollouts on the rescued or avoided prompts of the filter's one step; docs/metrics.md defines them.

    The Collaboration tab counts the same prompts, and its sentences link to these rollouts.
    """
    if not rollout_filter.prompt_kind or not parts:
        return Q()
    learner, source = rollout_filter.learner, rollout_filter.agent
    of_step = run.contributions.filter(attempt=parts[0].attempt, step=parts[0].first, reward__isnull=False)
    own = of_step.filter(Q(agent=learner, source=learner) | Q(agent=source, source=source)).order_by()
    rewards = own.values_list("agent", "prompt_id").annotate(low=Min("reward"), high=Max("reward"))
    ends = {(agent, prompt): (low, high) for agent, prompt, low, high in rewards}
    is_match = is_rescued if rollout_filter.prompt_kind == "rescue" else is_avoided
    prompts = [
        prompt
        for (agent, prompt), of_learner in ends.items()
        if agent == learner and (source, prompt) in ends and is_match(of_learner, ends[source, prompt])
    ]
    return PROMPT_KINDS[rollout_filter.prompt_kind] & Q(prompt_id__in=prompts)


def _pieces(
    rows: QuerySet[Any], segment: Segment, cursor: PageCursor | None, rollout_filter: RolloutFilter, is_backward: bool
) -> Iterator[tuple[QuerySet[Any], PageCursor | None, int]]:
    """Rows of a segment beyond the cursor, in pieces: (rows, their end or None for the last piece, their most rows)."""
    order = ("-step", "-seq") if is_backward else ("step", "seq")
    size = TEXT_PIECE if rollout_filter.text else PIECE
    of_attempt = rows.filter(attempt=segment.attempt).order_by(*order)
    while True:
        remaining = of_attempt.filter(_between(segment, cursor, None, is_backward))
        ends = list(remaining.values_list("step", "seq")[size - 1 : size])
        if not ends:
            yield remaining, None, size
            return
        last = PageCursor(*ends[0])
        yield of_attempt.filter(_between(segment, cursor, last, is_backward)), last, size
        cursor = last


def _between(segment: Segment, begin: PageCursor | None, last: PageCursor | None, is_backward: bool) -> Q:
    """Rows of a segment beyond `begin`, up to and with `last`, as one range of steps, which the index serves."""
    low, high = (last, begin) if is_backward else (begin, last)
    first_step = segment.first if low is None else max(segment.first, low.step)
    last_step = segment.last if high is None else min(segment.last, high.step)
    condition = Q(step__range=(first_step, last_step))
    if low is not None:
        condition &= Q(step__gt=low.step) | (Q(seq__gte=low.seq) if is_backward else Q(seq__gt=low.seq))
    if high is not None:
        condition &= Q(step__lt=high.step) | (Q(seq__lt=high.seq) if is_backward else Q(seq__lte=high.seq))
    return condition


def matching_rows(run: Run, rows: QuerySet[Any], rollout_filter: RolloutFilter) -> QuerySet[Any]:
    """The rows that match the filter."""
    source, tokens = ("source", "source_num_tokens") if rollout_filter.is_of_learner else ("agent", "num_tokens")
    conditions: dict[str, Any] = {
        "prompt_id": rollout_filter.prompt,
        source: rollout_filter.agent,
        f"{tokens}__gte": rollout_filter.min_tokens,
        f"{tokens}__lte": rollout_filter.max_tokens,
    }
    if rollout_filter.is_of_learner:
        conditions |= {
            "agent": rollout_filter.learner,
            "clip_side": CLIPS.get(rollout_filter.clip, ""),
            "advantage__gte": rollout_filter.min_advantage,
            "advantage__lte": rollout_filter.max_advantage,
        }
        rows = rows.filter(SIGNS.get(rollout_filter.sign, Q()))
        if rollout_filter.shared:
            rows = rows.exclude(agent=F("source"))
        if rollout_filter.clip:  # a row without a ratio lies on no side
            rows = rows.filter(sequence_ratio__isnull=False)
    rows = rows.filter(**{name: value for name, value in conditions.items() if value != ""})
    if rollout_filter.training_set:  # prompts of two sets have different ids
        of_set = RolloutSample.objects.filter(run_id=run.pk, benchmark=rollout_filter.training_set)
        rows = rows.filter(prompt_id__in=of_set.order_by().values("prompt_id"))
    if rollout_filter.is_unscorable:
        rows = rows.filter(reward__isnull=True)
    elif rollout_filter.rewards is not None:
        least, most = rollout_filter.rewards
        # Rewards are recorded in single precision: 0.3 is 0.30000001.
        rows = rows.filter(reward__range=(least - REWARD_TOLERANCE, most + REWARD_TOLERANCE))
    return _with_text(run, rows, rollout_filter) if rollout_filter.text else rows


def _with_text(run: Run, rows: QuerySet[Any], rollout_filter: RolloutFilter) -> QuerySet[Any]:
    holds = Q(completion__icontains=rollout_filter.text) | Q(prompt__icontains=rollout_filter.text)
    holds |= Q(turns__icontains=json.dumps(rollout_filter.text, ensure_ascii=False)[1:-1])  # a text within JSON
    if not rollout_filter.is_of_learner:
        return rows.filter(holds)
    place = {name: OuterRef(name) for name in ("attempt", "step", "prompt_id", "sample")}
    sampled = RolloutSample.objects.filter(holds, run_id=run.pk, agent=OuterRef("source"), **place)
    # Not by EXISTS: PostgreSQL would make a join of it, and read all rollouts of the run.
    return rows.alias(sampled_as=Subquery(sampled.order_by().values("pk")[:1])).filter(sampled_as__isnull=False)


def read_rewards(text: str | None) -> dict[str, float] | None:
    """The rewards of a recorded rollout by name."""
    rewards: dict[str, float] | None = json.loads(text) if text else None
    return rewards


def _hits(rows: QuerySet[Any], count: int, *, of_learner: bool = False, begin: int = 0) -> list[RolloutHit]:
    end = begin + count
    if not of_learner:
        samples = rows.values_list(*_OF_ROLLOUT)[begin:end]
        return [replace(RolloutHit(*row[:8]), rewards=read_rewards(row[8])) for row in samples]
    values = rows.values_list(*_OF_LEARNER)[begin:end]
    return [replace(RolloutHit(*row[:8]), taught=ContributionSummary(*row[8:])) for row in values]


ROWS_SORTED = 40_000
TEXTS_SORTED = 4_000

# The distance of ln s from 0: the larger of s and 1/s.
_SURPRISE = Case(
    When(sequence_ratio__gte=1, then=F("sequence_ratio")),
    When(sequence_ratio__gt=0, then=Value(1.0) / F("sequence_ratio")),
    When(sequence_ratio=0, then=Value(1e300)),
    output_field=FloatField(),
)


def sort_value(sort: str) -> Combinable:
    """The number by which contributions are sorted; null for a row that has none."""
    return Abs("weight") if sort == "weight" else _SURPRISE


def newest_rows(rows: QuerySet[Any], parts: Sequence[Segment], most: int) -> tuple[Q, int]:
    """The rows of the newest whole steps that have at most `most` rows, at least of one step; and the first of them."""
    condition, first_step = Q(pk__in=[]), parts[-1].last + 1
    for one in reversed(parts):
        of_attempt = rows.filter(attempt=one.attempt, step__range=(one.first, one.last))
        steps = of_attempt.order_by("-step", "-seq").values_list("step", flat=True)
        beyond = next(iter(steps[most : most + 1]), None)
        first = one.first if beyond is None else beyond + 1  # the step of the first row beyond the limit is not whole
        if one is parts[-1]:
            first = min(first, one.last)
        if first <= one.last:
            condition |= Q(attempt=one.attempt, step__range=(first, one.last))
            first_step = first
        if beyond is not None:
            break
        most -= of_attempt.count()
    return condition, first_step
