"""Who taught whom: sums, shares, histograms and sentences of recorded steps, worked out by hand; and the tab itself.

The step of `world`: prompts p and q, two rollouts each. Columns of a row: learner, source, prompt, sample, reward, A,
s, side, weight, reason it was dropped. A is wrong twice on p and right twice on q; B is right and wrong on both.
"""

from __future__ import annotations

import itertools
import math

import pytest
from django.urls import reverse

from hacrl_web.insight.collaboration import ratio_histogram, step_summary
from hacrl_web.insight.collaboration.collaboration import sentences, view
from hacrl_web.insight.collaboration.timeline import timeline
from hacrl_web.runs.models import Contribution, RolloutSample, Run, TelemetryEvent
from hacrl_web.runs.storage.stored_spec import readable_spec
from hacrl_web.runs.telemetry.tables import insert
from tests.support.web import factories
from tests.support.web.page_text import text_of
from workers.algorithms.registry import own_settings
from workers.contract.spec.run import RunSpec

ROWS = [
    ("A", "A", "p", 0, 0, -0.5, 1.0, "none", -0.5, None),
    ("A", "A", "p", 1, 0, -0.5, 1.0, "none", -0.5, None),
    ("A", "A", "q", 0, 1, 0.5, 1.0, "none", 0.5, None),
    ("A", "A", "q", 1, 1, 0.5, 1.1, "upper", 0.0, None),
    ("A", "B", "p", 0, 1, 1.5, 0.5, "lower", 0.0, None),
    ("A", "B", "p", 1, 0, -0.5, 0.9, "none", -0.4, None),
    ("A", "B", "q", 0, 1, 0.5, 0.95, "none", 0.6, None),
    ("A", "B", "q", 1, 0, -1.5, None, "none", 0.0, "overflow"),
    ("B", "B", "p", 0, 1, 0.5, 1.0, "none", 0.5, None),
    ("B", "B", "p", 1, 0, -0.5, 1.0, "none", -0.5, None),
    ("B", "B", "q", 0, 1, 0.0, None, "none", 0.0, None),
    ("B", "B", "q", 1, 0, -0.5, 1.0, "none", -0.5, None),
    ("B", "A", "p", 0, 0, -0.5, 0.3, "lower", 0.0, None),
    ("B", "A", "p", 1, 0, -0.5, 0.9, "none", -0.25, None),
    ("B", "A", "q", 0, 1, 0.5, 0.2, "lower", 0.0, None),
    ("B", "A", "q", 1, 1, 0.5, 0.1, "lower", 0.0, None),
]
TOKENS = {("A", "p"): 10, ("A", "q"): 20, ("B", "p"): 3, ("B", "q"): 5}  # of each rollout, in its source's tokens
CAPABILITY = {"A": 0.25, "B": 0.5}


def store(run: Run, step: int, rows=ROWS, attempt: int = 1, first: int | None = None) -> None:
    """Store a step's rollouts and what they taught; B has one more rollout that could not be scored."""
    seq = Contribution.objects.filter(run=run).count() * 3 + 1000 * step + 100_000 * attempt if first is None else first
    rewards: dict[tuple[str, str, int], float | None] = {(row[1], *row[2:4]): row[4] for row in rows}
    rewards["B", "q", 2] = None
    for (agent, prompt, sample), reward in rewards.items():
        seq += 1
        RolloutSample.objects.create(
            run=run, seq=seq, attempt=attempt, step=step, agent=agent, prompt_id=prompt, sample=sample, prompt="1+1=",
            completion="2", answer="2", reward=reward, finish_reason="stop", num_tokens=TOKENS[agent, prompt],
            mean_logp=-0.5,
        )  # fmt: skip
    for learner, source, prompt, sample, reward, advantage, ratio, side, weight, reason in rows:
        seq += 1
        Contribution.objects.create(
            run=run, seq=seq, attempt=attempt, step=step, agent=learner, source=source, prompt_id=prompt,
            sample=sample, num_tokens=0 if reason else 7, source_num_tokens=TOKENS[source, prompt], advantage=advantage,
            sequence_ratio=ratio, clipped_ratio=ratio, clip_side=side, weight=weight, mini_batch=int(learner != source),
            omega=1.0 if learner == source else CAPABILITY[source] / CAPABILITY[learner], drop_reason=reason,
            reward=reward, alpha=None if learner == source else 1.0, capability=CAPABILITY[learner],
            source_capability=CAPABILITY[source],
        )  # fmt: skip


def finish(run: Run, step: int, state: str = "completed") -> None:
    Run.objects.filter(pk=run.pk).update(state=state, step=step)
    run.refresh_from_db()


@pytest.fixture
def world(make_run):
    run = make_run()
    store(run, 1)
    finish(run, 1)
    return run


def spec_of(run: Run, **algorithm) -> RunSpec:
    changed = dict(run.spec)
    section = {**run.spec["algorithm"], **algorithm}
    changed["algorithm"] = own_settings(section["name"], section)
    return RunSpec.model_validate(changed)


def picture_of(run: Run, step: int = 1):
    summary = step_summary.summary_of(run, step_summary.recorded_steps(run), step)
    return view(spec_of(run), summary, step)


def pair_of(picture, learner: int, source: int):
    return next(pair for pair in picture["pairs"] if (pair["learner"], pair["source"]) == (learner, source))


def test_weights_of_each_pair_are_sums_of_absolute_weights_by_sign(world):
    picture = picture_of(world)
    # A from B: 0.6 with A > 0, 0.4 with A < 0; A from itself: 0.5, and 0.5 + 0.5: half of what moved A came from B less
    # one tenth: 1.0 of 2.5.
    assert pair_of(picture, 0, 1)["weight"] == pytest.approx([0.6, 0.4], abs=1e-12)
    assert pair_of(picture, 0, 0)["weight"] == pytest.approx([0.5, 1.0], abs=1e-12)
    assert pair_of(picture, 1, 0)["weight"] == pytest.approx([0.0, 0.25], abs=1e-12)


def test_each_rollout_has_one_outcome_in_counts_and_tokens(world):
    picture = picture_of(world)
    pair = pair_of(picture, 0, 1)
    # [rollouts, tokens of B]: p0 clipped (3), p1 and q0 used (3 + 5), q1 dropped (5).
    assert (pair["used"], pair["clipped"], pair["dropped"]) == ([2, 8], [1, 3], {"overflow": [1, 5]})
    assert pair_of(picture, 1, 1)["zero"] == [1, 5]
    assert pair_of(picture, 0, 0)["clipped"] == [1, 20]
    for pair in picture["pairs"]:
        outcomes = [pair["used"], pair["clipped"], pair["zero"], pair["other"], *pair["dropped"].values()]
        assert [sum(column) for column in zip(*outcomes, strict=True)] == [pair["rows"], pair["tokens"]]
    agent = picture["agents"][1]
    # B: four scored rollouts of 3 + 3 + 5 + 5 tokens, one of 5 that was not scored, two right.
    names = ("rollouts", "tokens", "verified", "verified_tokens", "correct")
    assert [agent[name] for name in names] == [5, 21, 4, 16, 2]


def test_text_that_was_not_sampled_is_counted_by_cause_in_a_step_and_in_the_run(web, world):
    records = []
    for seq, step, count in ((900_001, 1, 3.0), (900_002, 2, 5.0)):  # step 2 has no recorded rollouts
        body = factories.metrics(step, "A", **{"text_difference/characters": count, "text_difference/special": 0.0})
        records.append({**body.model_dump(), "seq": seq, "attempt": 1, "time": 1.0, "type": "metrics"})
    insert(world.pk, records)
    for place in ("step?step=1", "run"):
        first, second = web.get(f"/api/v1/runs/{world.pk}/collaboration/{place}").json()["agents"]
        assert first["text_differences"] == {"characters": 3, "special": 0, "space": 0, "other": 0}
        assert not any(second["text_differences"].values())


def test_rescued_and_avoided_prompts_are_counted(world):
    picture = picture_of(world)
    # On p A is all wrong and B once right, but that one is clipped; on q A is all right and B's mistake is dropped.
    assert (pair_of(picture, 0, 1)["rescue"], pair_of(picture, 0, 1)["avoided"]) == ([1, 0], [1, 0])
    # B is neither all wrong nor all right.
    assert (pair_of(picture, 1, 0)["rescue"], pair_of(picture, 1, 0)["avoided"]) == ([0, 0], [0, 0])
    Contribution.objects.filter(agent="A", source="B", prompt_id="p", sample=0).update(weight=0.1)
    step_summary._step_summary.cache_clear()
    assert pair_of(picture_of(world), 0, 1)["rescue"] == [1, 1]


def test_replayed_rollouts_of_earlier_versions_count_nowhere(world):
    before, bars = picture_of(world), ratio_histogram.clipping(world, spec_of(world), 0, {1: 1})
    Contribution.objects.create(
        run=world, seq=900, attempt=1, step=1, agent="A", source="B", prompt_id="r", sample=0, age=1, num_tokens=7,
        source_num_tokens=3, advantage=1.5, sequence_ratio=0.5, clipped_ratio=0.5, clip_side="lower", weight=0.25,
        mini_batch=1, omega=9.0, reward=1.0, capability=0.25, source_capability=0.5,
    )  # fmt: skip
    assert picture_of(world) == before
    assert ratio_histogram.clipping(world, spec_of(world), 0, {1: 1}) == bars


def test_sentences_on_prompts_lead_to_their_rollouts_and_to_no_others(web, world):
    by_kind = {
        sentence["prompt_kind"]: sentence
        for sentence in sentences(spec_of(world), picture_of(world))
        if sentence["kind"] == "prompts"
    }
    assert by_kind["rescue"]["text"].startswith("Rescue: on 1 of 2 prompts A had no correct answer and B had one")
    assert by_kind["mistake"]["text"].startswith(
        "Counter-examples: on 1 of 2 prompts A was always correct and B was not; on 0 of them"
    )
    for kind, place in (("rescue", ("p", 1.0)), ("mistake", ("q", 0.0))):
        assert (by_kind[kind]["learner"], by_kind[kind]["source"]) == ("A", "B")
        query = {"step": 1, "learner": "A", "source": "B", "prompt_kind": kind, "list": "rollouts"}
        page = web.get(reverse("insight:run_rollouts", args=[world.pk]), query).context["page"]
        assert {(hit.prompt_id, hit.reward) for hit in page.hits} == {place}


@pytest.mark.parametrize("query", [{"step": "1-2"}, {"learner": ""}, {"source": "A"}, {"step": ""}])
def test_filter_of_rescued_prompts_needs_one_step_and_one_pair(web, world, query):
    query_of_pair = {"step": "1", "learner": "A", "source": "B", "prompt_kind": "rescue", **query}
    answer = web.get(reverse("insight:run_rollouts", args=[world.pk]), query_of_pair)
    assert "prompt_kind without one step" in answer.content.decode()
    assert answer.context["rollout_filter"].prompt_kind == ""


def test_latest_attempt_of_a_step_wins(world):
    store(world, 1, rows=[row for row in ROWS if row[0] == row[1]], attempt=2)
    picture = picture_of(world)
    assert pair_of(picture, 0, 0)["rows"] == 4
    assert pair_of(picture, 0, 1)["rows"] == 0
    assert picture["agents"][0]["rollouts"] == 4
    assert ratio_histogram.shared_rows(world, {1: 2}, "A") == []


def test_steps_are_those_of_the_attempt_that_made_them_last(make_run):
    run = make_run()
    for step, attempt in ((1, 1), (2, 1), (3, 1), (2, 2), (4, 2)):
        store(run, step, rows=ROWS[:2], attempt=attempt)
    finish(run, 4)
    # The second attempt went from 2 to 4, and recorded no step 3.
    assert step_summary.recorded_steps(run) == {1: 1, 2: 2, 4: 2}


def test_step_under_way_is_not_shown(make_run):
    run = make_run()
    store(run, 1)
    store(run, 2, rows=ROWS[:3])
    finish(run, 1, state="running")
    assert list(step_summary.recorded_steps(run)) == [1]
    finish(run, 2, state="running")
    assert list(step_summary.recorded_steps(run)) == [1, 2]


def test_whole_run_goes_on_where_the_time_was_over_and_starts_again_after_a_repeated_step(make_run, monkeypatch):
    monkeypatch.setattr(step_summary, "ROWS_AT_ONCE", 16)  # a step has 16
    run = make_run()
    for step in (1, 2, 3):
        store(run, step)
    finish(run, 3)
    steps = step_summary.recorded_steps(run)
    done = [step_summary.run_summary(run, steps, 0.0)[1] for _ in range(4)]
    assert done == [1, 2, 3, 3]
    whole = view(spec_of(run), step_summary.run_summary(run, steps, 0.0)[0])
    assert pair_of(whole, 0, 1)["used"] == [6, 24]
    assert pair_of(whole, 0, 1)["weight"] == pytest.approx([1.8, 1.2], abs=1e-12)
    assert pair_of(whole, 0, 1)["omega"] is None, "several steps have no one omega"
    store(run, 2, rows=[row for row in ROWS if row[0] == row[1]], attempt=2)
    steps = step_summary.recorded_steps(run)
    assert step_summary.run_summary(run, steps, 0.0)[1] == 1
    assert pair_of(view(spec_of(run), step_summary.run_summary(run, steps, 9.0)[0]), 0, 1)["used"] == [4, 16]


def test_steps_added_up_together_give_what_they_give_one_by_one(make_run):
    run = make_run()
    for step, attempt in ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2)):
        store(run, step, rows=ROWS if attempt == 1 else ROWS[:12], attempt=attempt)
    finish(run, 4)
    steps = step_summary.recorded_steps(run)
    assert steps == {1: 1, 2: 2, 3: 2, 4: 1}
    whole, done = step_summary.run_summary(run, steps, 9.0)
    one_by_one = step_summary.Summary()
    for step in steps:
        one_by_one.add(step_summary.summary_of(run, steps, step))
    assert done == 4
    assert (whole.dropped, whole.prompts, whole.generated) == (
        one_by_one.dropped,
        one_by_one.prompts,
        one_by_one.generated,
    )
    assert whole.prompts["A", "B"]["prompts"] == 8, "a prompt of two steps is two"
    for pair, sums in one_by_one.pairs.items():
        assert dict(whole.pairs[pair]) == pytest.approx(dict(sums), abs=1e-12)


def test_clamp_is_told_outside_the_warm_up(make_run):
    run = make_run(algorithm={"name": "hacpo", "ratio_max": 1.5})
    store(run, 1)
    finish(run, 1)
    picture = picture_of(run)
    assert (pair_of(picture, 0, 1)["omega"], pair_of(picture, 0, 1)["clamped"]) == (2.0, True)  # 0.5 / 0.25 > 1.5
    assert not pair_of(picture, 1, 0)["clamped"]  # 0.5 is above 0.1
    summary = step_summary.summary_of(run, {1: 1}, 1)
    assert not pair_of(view(spec_of(run, ratio_warmup_steps=1), summary, 1), 0, 1)["clamped"]


def test_trap_is_told_from_the_limit_of_its_alert_on_and_only_where_clipped_rollouts_teach_nothing(world):
    def traps(**algorithm):
        spec = spec_of(world, **algorithm)
        return [sentence["text"] for sentence in sentences(spec, picture_of(world)) if sentence["kind"] == "trap"]

    # Both of A's correct answers lie below B's band; of B's one of two: 50 % is under 80 %.
    [text] = traps()
    assert text.startswith("100 % of A's correct answers lie below B's band: they teach B nothing (2 of 2")
    assert traps(cross_clip_gradient="sided") == []
    Contribution.objects.filter(agent="B", source="A", prompt_id="q", sample=0).update(clip_side="none")
    step_summary._step_summary.cache_clear()
    assert traps() == []


def test_sentence_names_the_share_of_the_peers(world):
    texts = [sentence["text"] for sentence in sentences(spec_of(world), picture_of(world))]
    # 1.0 of 2.5; 0.25 of 1.75 is 14 %
    assert "B supplied 40 % of A's update: 2 of 4 shared answers taught; 1 clipped." in texts
    assert "A supplied 14 % of B's update: 1 of 4 shared answers taught; 3 clipped." in texts


def test_line_above_tells_the_first_step_and_the_newest(web, world):
    base = reverse("api-1:get_collaboration", args=[world.pk])
    assert web.get(base).json()["so_far"][0] == {"name": "A", "peers": "40 % → 40 %", "accuracy": ""}
    # In step 2 nothing of B's teaches A any more; A's weights are .5 + .5 + .5 again. B: .25 of .25 + 1.5.
    store(world, 2, [row if row[:2] != ("A", "B") else (*row[:8], 0.0, row[9]) for row in ROWS])
    for step, value in ((0, 0.25), (1, 0.3), (2, 0.5)):
        event = {"benchmark": "b", "metric": "accuracy", "value": value}
        place = {"seq": step + 1, "step": step, "attempt": 1, "agent": "A", "time": 1.0}
        TelemetryEvent.objects.create(run=world, type="evaluation", payload=event, **place)
    finish(world, 2)
    first, second = web.get(base).json()["so_far"]
    assert first == {"name": "A", "peers": "40 % → 0 %", "accuracy": "0.250 → 0.500"}
    assert second == {"name": "B", "peers": "14 % → 14 %", "accuracy": ""}


def test_bars_hold_each_ratio_once_and_one_is_an_edge():
    ends = ratio_histogram.edges([0.5, 0.8, 1.25], 0.75)
    # The axis ends at the outermost ratios, in even steps of the logarithm.
    assert ends[0] <= 0.5
    assert ends[-1] >= 1.25 - 1e-12
    assert min(abs(end - 1) for end in ends) == 0
    widths = [math.log(high / low) for low, high in itertools.pairwise(ends)]
    assert widths == pytest.approx([math.log(1.25 / 0.5) / 44] * len(widths))
    rows = [
        ("B", 0.5, 1.0, 0.0, "lower", 1.0),
        ("B", 1.25, -1.0, 0.2, "upper", 0.0),
        ("B", 9.0, 1.0, 0.0, "upper", 1.0),
    ]
    bars_of_pair = ratio_histogram.count_ratios(rows, ends)
    assert [sum(bars) for bars in bars_of_pair["taught"]] == [0, 1]
    assert [sum(bars) for bars in bars_of_pair["lost"]] == [2, 0]
    assert bars_of_pair["lost"][0][0] == 1
    assert bars_of_pair["lost"][0][-1] == 1, "beyond the axis: in the last bar"
    assert bars_of_pair["beyond"] == [0, 1]
    assert (bars_of_pair["evaluated"], bars_of_pair["lower"], bars_of_pair["upper"], bars_of_pair["unused"]) == (
        [2, 1],
        [1, 0],
        [1, 1],
        [2, 0],
    )


def test_bar_takes_its_lower_edge_and_not_its_upper():
    ends = [0.25, 0.5, 1.0, 2.0]
    rows = [("B", s, 1.0, 1.0, "none", 1.0) for s in (0.25, 0.4999, 0.5, 0.999, 1.0, 2.0)]
    assert ratio_histogram.count_ratios(rows, ends)["taught"][0] == [
        2,
        2,
        2,
    ]  # 2.0, the end of the axis, belongs to the last bar


def test_band_rises_with_each_update(world):
    # One mini-batch a block: own m = 0, shared m = 1. Eq. (14): 1 - 0.2 + 1 * 0.025.
    [bound] = ratio_histogram.bounds(spec_of(world, delta=0.2, delta_step=0.025))
    assert (bound["m"], bound["high"]) == (1, 1.0)
    assert bound["low"] == pytest.approx(0.825, abs=1e-12)
    assert ratio_histogram.bounds(spec_of(world, clip_cross=False)) == []
    [naive] = ratio_histogram.bounds(spec_of(world, name="naive_source"))
    assert (naive["m"], naive["low"], naive["high"]) == (None, 1 - 3e-4, 1 + 4e-4)


def test_window_ends_where_its_rows_are_too_many_to_count(make_run, monkeypatch):
    run = make_run()
    for step in (1, 2, 4):
        store(run, step)
    steps = {1: 1, 2: 1, 4: 1}
    assert ratio_histogram.window_steps(run, steps, 2, 20) == [1, 2]
    assert ratio_histogram.window_steps(run, steps, 4, 2) == [2, 4]
    # 16 rows a step, half of them one learner's
    monkeypatch.setattr(ratio_histogram, "MOST_ROWS", 16)
    assert ratio_histogram.window_steps(run, steps, 4, 20) == [2, 4]
    monkeypatch.setattr(ratio_histogram, "MOST_ROWS", 7)
    assert ratio_histogram.window_steps(run, steps, 4, 20) == [4], "the chosen step always"


def test_timeline_keeps_clamped_columns_and_extremes(make_run):
    run = make_run()
    bodies = [
        factories.metrics(step, "A", "B", omega=9.0 if step == 77 else 1.0, omega_clamped=float(step == 77))
        for step in range(1, 241)
    ]
    records = [
        {**body.model_dump(), "seq": seq, "attempt": 1, "time": 1.0, "type": "metrics"}
        for seq, body in enumerate(bodies, 1)
    ]
    insert(run.pk, records)
    lines = timeline(run, spec_of(run))
    [pair] = [pair for pair in lines["pairs"] if pair["omega"]]
    # 241 places of at most 120 columns: 4 steps wide. Steps 76 to 79 are column 19, whose last value is 1.
    assert lines["width"] == 4
    assert pair["clamped"] == [19]
    place = pair["omega"]["steps"].index(79)
    assert (pair["omega"]["last"][place], pair["omega"]["high"][place]) == (1.0, 9.0)


@pytest.fixture
def web(client, world):
    client.force_login(world.owner)
    return client


def test_api_tells_a_step_and_its_ratios(web, world):
    base = reverse("api-1:get_collaboration", args=[world.pk])
    body = web.get(base).json()
    assert (body["steps"], body["ended"]) == ([1], True)
    assert web.get(f"{base}/steps").json()["steps"] == [1]
    step = web.get(f"{base}/step?step=1").json()
    assert step["sentences"][0]["kind"] == "trap"
    ratios = web.get(f"{base}/ratios?step=1&learner=0").json()
    [histogram_of_b] = ratios["sources"]
    # Evaluated with an advantage: p0, q0 (A > 0) and p1 (A < 0); q1 was dropped.
    assert histogram_of_b["evaluated"] == [2, 1]
    whole = web.get(f"{base}/run").json()
    assert (whole["done"], whole["of"]) == (1, 1)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/step?step=2", 404), ("/step", 422), ("/step?step=-1", 422), ("/step?step=99999999999999999999", 422),
        ("/ratios?step=1&learner=2", 422), ("/ratios?step=1&learner=9", 422), ("/ratios?step=1&learner=x", 422),
        ("/ratios?step=1&learner=0&window=0", 422), ("/ratios?step=2&learner=0", 404),
    ],
)  # fmt: skip
def test_odd_questions_are_refused(web, world, path, status):
    assert web.get(reverse("api-1:get_collaboration", args=[world.pk]) + path).status_code == status


def page_of(client, run: Run) -> str:
    client.force_login(run.owner)
    answer = client.get(reverse("insight:collaboration", args=[run.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_run_without_recorded_rollouts_says_why(client, make_run):
    page = page_of(client, make_run(telemetry={"rollout_interval": 0}))
    assert "<code>telemetry.rollout_interval</code> is 0" in page
    assert "The metrics of the pairs are below." in page
    assert "The pictures of this tab appear by themselves with the first one" in page_of(client, make_run())


def test_run_that_shares_nothing_has_a_ledger_and_no_pairs(client, make_run):
    run = make_run(algorithm={"name": "gspo"})
    own = [row for row in ROWS if row[0] == row[1]]
    store(run, 1, rows=own)
    finish(run, 1)
    page = page_of(client, run)
    assert "This run shares no rollouts" in page
    assert 'id="ledger"' in page
    assert 'id="matrix"' not in page
    assert [(pair["learner"], pair["source"]) for pair in picture_of(run)["pairs"]] == [(0, 0), (1, 1)]
    texts = [sentence["text"] for sentence in sentences(spec_of(run), picture_of(run))]
    assert texts == [
        "3 of 4 own rollouts taught A; 1 clipped.",
        "3 of 4 own rollouts taught B; 1 had no advantage.",
    ]
    base = reverse("api-1:get_collaboration", args=[run.pk])
    assert client.get(f"{base}/ratios?step=1&learner=0").status_code == 200


def test_run_of_an_earlier_version_has_the_lowest_and_the_highest_omega_of_a_step_by_prompt(make_run):
    run = make_run()
    store(run, 1)
    Contribution.objects.filter(run=run, agent="A", source="B", prompt_id="q").update(omega=0.75)
    finish(run, 1)
    factories.as_of_earlier_version(run, algorithm={"omega_scope": "prompt"})
    spec = readable_spec(run.spec)
    pair = pair_of(view(spec, step_summary.summary_of(run, step_summary.recorded_steps(run), 1), 1), 0, 1)
    assert (pair["omega_low"], pair["omega"], pair["clamped"]) == (0.75, 2.0, False)


def test_lesson_of_the_newest_step_has_reward_ribbon_and_a_sentence(web, world, make_run):
    page = text_of(web.get(f"/runs/{world.pk}/lesson"))
    # B: |weights| 1.5 of its own, 0.25 from A: 0.25 / 1.75.
    assert "14 % from peers" in page
    assert 'x="14.29" width="85.71"' in page
    assert "Step 1" in page
    assert "B" in page.split('<p class="lesson">')[1]
    assert web.get(f"/runs/{make_run(world.owner).pk}/lesson").content == b""
