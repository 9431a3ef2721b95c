"""Packed metrics: a copy that loses and repeats nothing while others resume, pack or read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError

from hacrl_web.runs.models import MetricChunk, Run, State
from hacrl_web.runs.telemetry import metric_series, table_upkeep
from hacrl_web.runs.telemetry.metric_series import MetricSeries, metric_rows, pack, pack_block, read_series, unpack
from hacrl_web.runs.telemetry.table_upkeep import TableUpkeep
from hacrl_web.runs.telemetry.tables import insert

Record = dict[str, Any]


@pytest.fixture
def run(make_run):
    return make_run()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(metric_series, "MIN_EVENTS", 6)
    monkeypatch.setattr(metric_series, "BLOCK_EVENTS", 20)


def record_steps(run: Run, attempt: int, first: int, last: int, chance: random.Random) -> None:
    """An attempt's events from step `first` to `last`: two agents, one pair, a rare metric, nulls, an evaluation."""
    records: list[Record] = []
    for step in range(first, last + 1):
        for agent, source in (("A", ""), ("B", ""), ("A", "B")):
            values = {"loss": chance.choice([None, chance.random()]), "kl": chance.random()}
            if step % 5 == 0:
                values["gradient_alignment"] = chance.random()
            ratios = {"reward/mean": [float(chance.randrange(9)), chance.choice([0.0, 8.0])]}
            body = {"type": "metrics", "agent": agent, "source": source, "values": values, "ratios": ratios}
            records.append(body | {"step": step})
        if step % 4 == 0:
            body = {"type": "evaluation", "agent": "A", "metric": "accuracy", "value": chance.random()}
            records.append(body | {"step": step, "correct": 1, "asked": 2})
        records.append({"type": "progress", "step": step})
    store(run, attempt, records)


def store(run: Run, attempt: int, records: list[Record]) -> None:
    run.refresh_from_db()
    for seq, record in enumerate(records, run.last_seq + 1):
        record |= {"seq": seq, "attempt": attempt, "time": 1.0}
    insert(run.pk, records)
    Run.objects.filter(pk=run.pk).update(last_seq=run.last_seq + len(records), attempt=attempt)


def read_plainly(run: Run) -> Iterator[tuple[Any, ...]]:
    """The events' values, one after the other; where several attempts recorded a step, the highest."""
    events = list(run.events.filter(type__in=("metrics", "evaluation")).order_by("step", "agent", "source", "seq"))
    latest: dict[Any, int] = {}
    for event in events:
        place = (event.type, event.step, event.agent, event.source)
        latest[place] = max(event.attempt, latest.get(place, 0))
    for event in events:
        if event.attempt != latest[event.type, event.step, event.agent, event.source]:
            continue
        body = event.payload
        if event.type == "evaluation":
            yield event.step, event.agent, "", body["metric"], body["value"]
            continue
        for name, value in body["values"].items():
            yield event.step, event.agent, event.source, name, value
        for name, (total, count) in body["ratios"].items():
            yield event.step, event.agent, event.source, name, total / count if count else None


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(6))
def test_packed_numbers_are_those_of_the_events_whatever_was_resumed_when(run, seed: int) -> None:
    chance = random.Random(seed)
    last = 0
    for attempt in (1, 2, 3, 4):
        first = max(1, last - chance.randrange(-1, 9))  # some steps are recorded again
        last = max(first, last + chance.randrange(-6, 12))  # and some attempts end before they have recorded them all
        record_steps(run, attempt, first, last, chance)
        expected = list(read_plainly(run))
        assert list(metric_rows(run)) == expected
        for _ in range(chance.randrange(4)):
            pack_block(run)
            assert list(metric_rows(run)) == expected
    while pack_block(run):
        assert list(metric_rows(run)) == expected
    run.refresh_from_db()
    assert run.packed_seq
    assert run.metric_chunks.exists()


@pytest.mark.django_db
def test_chosen_columns_and_steps_are_cut_out_of_all_numbers(run) -> None:
    record_steps(run, 1, 1, 20, random.Random(0))
    pack_block(run)
    record_steps(run, 2, 15, 30, random.Random(1))
    every = read_series(run)
    assert {one.metric for one in every} == {"loss", "kl", "gradient_alignment", "reward/mean", "accuracy"}
    some = read_series(run, {"kl", "accuracy"}, {"A"}, first=4, last=17)
    expected = []
    for one in every:
        if one.metric in ("kl", "accuracy") and one.agent == "A":
            points = zip(one.steps, one.values, strict=True)
            expected.append((one.key, [(step, value) for step, value in points if 4 <= step <= 17]))
    assert [(one.key, list(zip(one.steps, one.values, strict=True))) for one in some] == expected
    assert len(some) == 3


@pytest.mark.django_db
def test_packed_numbers_are_read_from_chunks(run) -> None:
    record_steps(run, 1, 1, 30, random.Random(3))
    expected = list(metric_rows(run))
    while pack_block(run):
        pass
    run.refresh_from_db()
    run.events.filter(type="metrics", seq__lte=run.packed_seq).delete()
    assert list(metric_rows(run)) == expected


@pytest.mark.django_db
def test_a_payload_of_no_trainer_of_ours_stops_neither_reading_nor_packing(run) -> None:
    odd = {"values": {"a": "x", "b": 10**400, "c": [1], "d": 0.5}, "ratios": {"e": [1], "f": "zz", "g": [3, 4]}}
    store(run, 1, [{"type": "metrics", "step": step, "agent": "A", "source": "", **odd} for step in range(1, 8)])
    expected = {"a": None, "b": None, "c": None, "d": 0.5, "e": None, "f": None, "g": 0.75}
    for _ in range(2):
        numbers = {series.metric: series.numbers() for series in read_series(run)}
        assert numbers == {name: [value] * 7 for name, value in expected.items()}
        pack_block(run)
    assert run.metric_chunks.count() == 7


@pytest.mark.django_db
def test_of_two_that_pack_the_same_events_one_does(run, monkeypatch) -> None:
    record_steps(run, 1, 1, 20, random.Random(4))
    expected = list(metric_rows(run))
    before = metric_series._packed_seq(run)
    assert pack_block(run) == 20
    stored = MetricChunk.objects.count()
    monkeypatch.setattr(metric_series, "_packed_seq", lambda _: before)  # read before the first had finished
    assert pack_block(run) == 0
    monkeypatch.undo()
    assert MetricChunk.objects.count() == stored
    assert list(metric_rows(run)) == expected


@pytest.mark.django_db
def test_a_crash_while_packing_leaves_everything_as_it_was(run, monkeypatch) -> None:
    record_steps(run, 1, 1, 10, random.Random(5))
    pack_block(run)
    record_steps(run, 2, 5, 20, random.Random(6))
    expected, before = list(metric_rows(run)), list(MetricChunk.objects.order_by("pk").values())

    def crash(*_: Any) -> None:
        raise DatabaseError("full")

    monkeypatch.setattr(MetricChunk.objects, "bulk_create", crash)
    seq = metric_series._packed_seq(run)
    with pytest.raises(DatabaseError):
        pack_block(run)
    assert metric_series._packed_seq(run) == seq
    assert list(MetricChunk.objects.order_by("pk").values()) == before
    assert list(metric_rows(run)) == expected


@pytest.mark.django_db
@pytest.mark.parametrize("moment", ["read_chunks", "read_metrics"])
@pytest.mark.parametrize("always", [False, True])
def test_numbers_are_whole_where_packing_happens_while_they_are_read(run, monkeypatch, moment, always) -> None:
    record_steps(run, 1, 1, 10, random.Random(7))
    pack_block(run)
    record_steps(run, 2, 5, 40, random.Random(8))  # packing it trims the first chunks
    expected = list(read_plainly(run))
    plain, times = getattr(metric_series._SeriesReader, moment), []

    def interrupted(reader: Any, *arguments: Any) -> None:
        if always or not times:
            times.append(pack_block(run))
        plain(reader, *arguments)

    monkeypatch.setattr(metric_series._SeriesReader, moment, interrupted)
    assert list(metric_rows(run)) == expected
    assert times[0] == 20


@pytest.mark.parametrize("steps", [[1], [1, 2, 3], [10, 20, 30], [1, 2, 4], [5, 5, 5], [5, 5, 6], [0, 3, 7]])
def test_blob_gives_back_every_bit(steps: list[int]) -> None:
    series = MetricSeries("loss", "A")
    for step, value in zip(steps, [0.1, None, -1e-300], strict=False):
        series.add(step, value)
    unpacked = MetricSeries(
        "loss", "A", "", *unpack(pack(series.steps, series.values), len(steps), steps[0], steps[-1])
    )
    assert unpacked.steps.tolist() == steps
    assert unpacked.numbers() == [0.1, None, -1e-300][: len(steps)]


@pytest.mark.django_db
class TestRetention:
    @pytest.fixture(autouse=True)
    def _much_time_for_few_events(self, monkeypatch):
        monkeypatch.setattr(table_upkeep, "MIN_EVENTS", 6)
        monkeypatch.setattr(table_upkeep, "BUDGET_S", 60.0)

    def test_ended_and_training_runs_are_packed_and_small_ones_left(self, make_run) -> None:
        ended, training, small = (make_run() for _ in range(3))
        for place, (run, steps) in enumerate(((ended, 30), (training, 30), (small, 1))):
            record_steps(run, 1, 1, steps, random.Random(place))
        Run.objects.filter(pk=ended.pk).update(state=State.COMPLETED)
        Run.objects.filter(pk=training.pk).update(state=State.RUNNING)
        job = TableUpkeep()
        assert job.pack() == 2 * 90
        assert job.pack() == 0
        counts = [run.metric_chunks.count() for run in (ended, training, small)]
        assert counts[0] == counts[1] > counts[2] == 0

    def test_what_has_too_little_to_pack_is_not_looked_at_again(self, run, monkeypatch) -> None:
        store(run, 1, [{"type": "log", "message": "x"} for _ in range(20)])
        looks = []
        monkeypatch.setattr(table_upkeep, "pack_block", lambda run: looks.append(run.pk) or 0)
        job = TableUpkeep()
        for _ in range(3):
            job.pack()
        assert looks == [run.pk]

    def test_one_round_stops_in_time_and_the_next_goes_on(self, run, monkeypatch) -> None:
        monkeypatch.setattr(table_upkeep, "BUDGET_S", -1.0)
        record_steps(run, 1, 1, 30, random.Random(0))
        assert TableUpkeep().pack() == 0
        monkeypatch.setattr(table_upkeep, "BUDGET_S", 60.0)
        assert TableUpkeep().pack() == 90

    def test_all_runs_get_their_turn(self, make_run, monkeypatch) -> None:
        monkeypatch.setattr(table_upkeep, "RUNS_CHECKED", 2)
        for place in range(5):
            record_steps(make_run(), 1, 1, 10, random.Random(place))
        job = TableUpkeep()
        assert [job.pack() for _ in range(4)] == [60, 60, 30, 0]


def test_run_of_an_older_version_does_not_end_the_upkeep(run) -> None:
    """Settings without the section that says which texts are kept: all of them are."""
    del run.spec["telemetry"]
    Run.objects.filter(pk=run.pk).update(spec=run.spec, step=5)
    assert TableUpkeep().clear() == 0
