"""Finding rollouts: every filter against a plain loop, pages that miss and repeat nothing, and a bounded time."""

from __future__ import annotations

import random
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.http import QueryDict

from hacrl_web.insight.recorded_steps import Segment, segments
from hacrl_web.insight.rollouts import search as rollout_search
from hacrl_web.insight.rollouts.filter import PageCursor, RolloutFilter, read_cursor, read_filter
from hacrl_web.insight.rollouts.search import search_rollouts
from tests.support.web.insight_rows import AGENTS, contribution, made_up, rollout
from tests.support.web.insight_rows import insert as insert_rows

# Attempt 1 made steps 1 to 6, attempt 2 went on from step 4, attempt 3 from step 5.
ATTEMPTS = {1: range(1, 7), 2: range(5, 8), 3: range(6, 9)}
LATEST = {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 3, 7: 3, 8: 3}


@pytest.fixture
def run(make_run):
    return make_run()


def ask(query: str) -> RolloutFilter:
    return read_filter(QueryDict(query), AGENTS)[0]


def all_hits(run, rollout_filter: RolloutFilter, *, is_backward: bool = False) -> list:
    """Page after page to the end."""
    hits: list = []
    cursor = PageCursor(10**6, 10**6) if is_backward else None
    for _ in range(500):
        place = {"before" if is_backward else "after": str(cursor or "")}
        page = search_rollouts(run, rollout_filter.model_copy(update=place))
        hits = [*page.hits, *hits] if is_backward else [*hits, *page.hits]
        cursor = page.before if is_backward else page.after
        if cursor is None:
            return hits
    raise AssertionError("no end of pages")


def expected(records: list[dict], rollout_filter: RolloutFilter) -> list[int]:
    """The same by a plain loop, in the order of the steps."""
    kind = "contribution" if rollout_filter.is_of_learner else "rollout"
    texts = {
        (r["attempt"], r["step"], r["agent"], r["prompt_id"], r["sample"]): (r["prompt"] + "\n" + r["completion"])
        for r in records
        if r["type"] == "rollout"
    }

    def fits(record: dict) -> bool:
        if record["type"] != kind:
            return False
        source = record.get("source", record["agent"])
        tokens = record["source_num_tokens"] if kind == "contribution" else record["num_tokens"]
        place = (record["attempt"], record["step"], source, record["prompt_id"], record["sample"])
        checks = [
            LATEST[record["step"]] == record["attempt"],
            rollout_filter.steps is None or rollout_filter.steps[0] <= record["step"] <= rollout_filter.steps[1],
            not rollout_filter.agent or source == rollout_filter.agent,
            not rollout_filter.prompt or record["prompt_id"] == rollout_filter.prompt,
            not rollout_filter.is_unscorable or record["reward"] is None,
            not rollout_filter.min_tokens or tokens >= int(rollout_filter.min_tokens),
            not rollout_filter.max_tokens or tokens <= int(rollout_filter.max_tokens),
        ]
        if not all(checks) or rollout_filter.text.lower() not in texts[place].lower():
            return False
        low, high = rollout_filter.rewards or (-1.0, 2.0)
        if (
            not rollout_filter.is_unscorable
            and not low <= (-1.0 if record["reward"] is None else record["reward"]) <= high
        ):
            return False
        if kind == "rollout":
            return True
        a, side = record["advantage"], record["clip_side"]
        signs = {"positive": a > 0, "negative": a < 0, "zero": a == 0, "": True}
        sides = {"lower": side == "lower", "upper": side == "upper", "": True}
        sides["inside"] = side == "none" and record["sequence_ratio"] is not None
        return (
            (not rollout_filter.learner or record["agent"] == rollout_filter.learner)
            and signs[rollout_filter.sign]
            and sides[rollout_filter.clip]
            and (not rollout_filter.min_advantage or a >= float(rollout_filter.min_advantage))
            and (not rollout_filter.max_advantage or a <= float(rollout_filter.max_advantage))
        )

    return [r["seq"] for r in sorted(records, key=lambda r: (r["step"], r["seq"])) if fits(r)]


CHOICES = {
    "step": ["", "3", "2-7", "9-5", "11"],
    "agent": ["", "A"],
    "source": ["", "", "B"],
    "prompt": ["", "", "p1"],
    "reward": ["", "1", "0..0.5", "none"],
    "learner": ["", "A", "B"],
    "sign": ["", "", "positive", "negative", "zero"],
    "clip": ["", "", "lower", "inside", "upper"],
    "min_advantage": ["", "", "0.5"],
    "max_advantage": ["", "", "1"],
    "min_tokens": ["", "6"],
    "max_tokens": ["", "9"],
    "q": ["", "", "THREE", "question p0"],
}


def test_each_mix_of_filters_finds_what_a_plain_loop_finds(run, monkeypatch):
    monkeypatch.setattr(rollout_search, "PAGE_SIZE", 10)
    monkeypatch.setattr(rollout_search, "PIECE", 20)
    monkeypatch.setattr(rollout_search, "TEXT_PIECE", 5)
    monkeypatch.setattr(rollout_search, "BUDGET_S", 60.0)
    records = made_up(run, ATTEMPTS)
    chance = random.Random(1)
    mixes = [{name: value} for name, values in CHOICES.items() for value in values if value]
    mixes += [{name: chance.choice(values) for name, values in CHOICES.items()} for _ in range(12)]
    sizes = []
    for mix in mixes:
        rollout_filter = ask(urlencode(mix))
        seqs = expected(records, rollout_filter)
        assert [hit.seq for hit in all_hits(run, rollout_filter)] == seqs, mix
        sizes.append(len(seqs))
        if len(sizes) % 3 == 0:
            assert [hit.seq for hit in all_hits(run, rollout_filter, is_backward=True)] == seqs, mix
    assert sum(size > 10 for size in sizes) > 10


def test_search_stops_in_time_says_how_far_it_came_and_goes_on(run, monkeypatch):
    monkeypatch.setattr(rollout_search, "PIECE", 4)
    monkeypatch.setattr(rollout_search, "BUDGET_S", 0.0)
    records = made_up(run, ATTEMPTS)
    page = search_rollouts(run, ask("agent=B&step=1"))
    assert page.num_searched == 4  # a step has eight rollouts, those of A first
    assert (page.hits, page.stopped_at) == ([], 1)
    rollout_filter = ask("agent=B")
    assert [hit.seq for hit in all_hits(run, rollout_filter)] == expected(records, rollout_filter)
    assert [hit.seq for hit in all_hits(run, rollout_filter, is_backward=True)] == expected(records, rollout_filter)


def test_reward_is_found_by_the_number_that_a_page_shows(run):
    """0.3 is recorded in single precision: 0.30000001."""
    insert_rows(
        run.pk, [rollout(1, 1, "A", "p0", 0, reward=0.30000001192092896), rollout(2, 1, "A", "p0", 1, reward=0.31)]
    )
    assert [hit.seq for hit in all_hits(run, ask("reward=0.3"))] == [1]


def test_latest_attempt_of_a_step_wins(run):
    made_up(run, ATTEMPTS)
    parts = segments(run.rollouts.all())
    assert parts == [Segment(1, 1, 4), Segment(2, 5, 5), Segment(3, 6, 8)]
    assert segments(run.rollouts.all(), 5, 6) == [Segment(2, 5, 5), Segment(3, 6, 6)]
    assert segments(run.rollouts.all(), 20, 30) == []
    assert {hit.attempt for hit in all_hits(run, ask("step=6"))} == {3}


def test_attempt_that_got_less_far_leaves_the_later_steps_to_the_earlier_one(run):
    made_up(run, {1: range(1, 10), 2: range(4, 6)})
    assert segments(run.rollouts.all()) == [Segment(1, 1, 3), Segment(2, 4, 5), Segment(1, 6, 9)]


def test_same_prompt_in_a_later_step_stands_beside_the_earlier_one(run):
    insert_rows(run.pk, [rollout(step, step, "A", "again", 0, completion=f"of step {step}") for step in (1, 2, 3)])
    assert [hit.step for hit in search_rollouts(run, ask("prompt=again")).hits] == [1, 2, 3]
    assert list(run.rollouts.values_list("completion", flat=True)) == ["of step 1", "of step 2", "of step 3"]


def test_rollouts_of_another_run_are_not_found(run, make_run):
    other = make_run()
    insert_rows(other.pk, [rollout(1, 1, "A", "p", 0), contribution(2, 1, "B", "A", "p", 0)])
    assert search_rollouts(run, ask("")).hits == []
    assert search_rollouts(run, ask("learner=B")).hits == []
    assert rollout_search.hit_of(run, 1) is None


def test_odd_values_are_named_and_left_out():
    rollout_filter, ignored = read_filter(QueryDict("step=x&reward=many&sign=up&min_tokens=-1&agent=C"), AGENTS)
    assert rollout_filter.encode() == ""
    assert sorted(ignored) == ["agent 'C'", "min_tokens '-1'", "reward 'many'", "sign 'up'", "step 'x'"]
    assert ask("min_advantage=nan&max_advantage=inf").encode() == ""
    assert ask("step=3-1").steps == (1, 3)
    assert ask("source=A&agent=B").encode() == "agent=A", "two names for one thing: source counts"
    assert read_cursor("12.34") == PageCursor(12, 34)
    assert [read_cursor(text) for text in ("", "1", "1.x", "-1.2", "1.2.3", "9" * 40 + ".1")] == [None] * 6


def by_plain_loop(records: list[dict], sort: str, steps: range) -> list[tuple[float, int]]:
    """(minus the value of the sort, seq) of the contributions, the largest value first."""
    rows = [
        record
        for record in records
        if (record["type"], record["agent"]) == ("contribution", "A")
        and record["step"] in steps
        and LATEST[record["step"]] == record["attempt"]
    ]

    def value(row: dict) -> float:
        if sort == "weight":
            return abs(row["weight"])
        ratio = row["sequence_ratio"]
        return -1.0 if ratio is None else max(ratio, 1 / ratio)

    return sorted((-value(row), row["step"], row["seq"]) for row in rows)


@pytest.mark.parametrize("sort", ["weight", "surprise"])
def test_sort_is_exact_over_pages_forth_and_back(run, monkeypatch, sort):
    monkeypatch.setattr(rollout_search, "PAGE_SIZE", 5)
    records = made_up(run, ATTEMPTS)
    chance = random.Random(3)
    for row in run.contributions.all():
        row.weight = round(chance.uniform(-3, 3), 1)
        row.save()
        next(one for one in records if one["seq"] == row.seq)["weight"] = row.weight
    for steps, query in ((range(7, 8), "step=7"), (range(3, 8), "step=3-7"), (range(1, 9), "")):
        rollout_filter = ask(f"{query}&learner=A&sort={sort}")
        seqs = [seq for *_, seq in by_plain_loop(records, sort, steps)]
        assert [hit.seq for hit in all_hits(run, rollout_filter)] == seqs
    page = search_rollouts(run, rollout_filter.model_copy(update={"after": "0.5"}))
    back = search_rollouts(run, rollout_filter.model_copy(update={"before": str(page.before)}))
    assert [hit.seq for hit in (*back.hits, *page.hits)] == seqs[:10]


def test_sort_of_more_rows_than_its_limit_covers_the_newest_whole_steps_and_says_so(run, monkeypatch):
    for step in range(1, 6):  # attempt 2 made steps 4 and 5
        attempt = 1 if step < 4 else 2
        body = [contribution(10 * step + n, step, "A", "B", "p", n, attempt, weight=10.0 - step) for n in range(4)]
        insert_rows(run.pk, body)
    # 13 rows hold three steps of 4; 8 hold two; of a single row the newest step is there all the same.
    for limit, first in ((20, None), (13, 3), (12, 3), (8, 4), (1, 5)):
        monkeypatch.setattr("hacrl_web.insight.rollouts.search.ROWS_SORTED", limit)
        page = search_rollouts(run, ask("sort=weight"))
        assert page.sorted_from == first, limit
        assert [hit.step for hit in page.hits[::4]] == list(range(first or 1, 6)), limit


def test_shared_rollouts_are_of_all_sources_but_the_learner(run):
    rows = [("A", "A"), ("A", "B"), ("B", "A"), ("B", "B")]
    insert_rows(run.pk, [contribution(n + 1, 1, *pair, "p", 0) for n, pair in enumerate(rows)])
    for query, seqs in (("shared=yes", [2, 3]), ("shared=yes&learner=A", [2]), ("shared=yes&source=B", [2])):
        assert [hit.seq for hit in all_hits(run, ask(query))] == seqs


def test_surprise_of_a_ratio_of_zero_is_the_largest(run):
    ratios = [1.0, 0.0, 2.0, None, 0.25]
    insert_rows(run.pk, [contribution(n + 1, 1, "A", "B", f"p{n}", 0, sequence_ratio=r) for n, r in enumerate(ratios)])
    assert [hit.seq for hit in search_rollouts(run, ask("sort=surprise")).hits] == [2, 5, 3, 1, 4]


def test_text_of_what_taught_is_looked_up_by_its_place(run):
    """SQLite read all rollouts of the run for each contribution: 5 s for 4,000."""
    if connection.vendor != "sqlite":
        pytest.skip("SQLite's planner")
    matching = rollout_search.matching_rows(run, run.contributions.filter(attempt=1), ask("learner=A&q=one"))
    assert "INDEX rollout_place (run_id=? AND step=? AND agent=? AND prompt_id=? AND sample=?)" in matching.explain()


def test_several_rewards_come_back_by_name(run):
    insert_rows(run.pk, [rollout(1, 1, "A", "p0", 0, rewards={"verifier": 1.0, "steps": 0.5})])
    insert_rows(run.pk, [rollout(2, 1, "A", "p0", 1)])
    assert [hit.rewards for hit in all_hits(run, ask("step=1"))] == [{"verifier": 1.0, "steps": 0.5}, None]
