"""From spool to rows: everything once, in order, fenced by the attempt, whatever is in it."""

import json
import random
import zlib

import pytest
from django.db import OperationalError

from hacrl_web.runs.models import Contribution, RolloutSample, Run, State, TelemetryEvent, Worker
from hacrl_web.runs.telemetry import shipper as telemetry
from hacrl_web.runs.telemetry import spool_reader
from hacrl_web.runs.telemetry.metric_series import metric_rows, read_series
from hacrl_web.runs.telemetry.shipper import LeaseLost, Shipper
from hacrl_web.runs.telemetry.spool_reader import SpoolReader
from tests.support.fake_trainer import rollouts
from tests.support.web.factories import make_run, metrics, write_spool
from workers.contract import spool
from workers.contract.events import Contribution as ContributionEvent
from workers.contract.events import Evaluation, Metrics, Progress, Started
from workers.contract.spool import SPOOL_NAME, SpoolWriter, rotated

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(db):
    """A claimed run, attempt 1."""
    return Run.objects.claim(make_run().pk, Worker("host", 1, 0.0, "here"))


def shipper(run: Run) -> Shipper:
    return Shipper(run.pk, run.run_dir, run.attempt)


def write_line(run: Run, **record) -> None:
    """A spool line that the contract's writer would not write."""
    text = json.dumps(record)
    with open(run.run_dir / SPOOL_NAME, "ab") as spool:
        spool.write(f'{text[:-1]},"crc":"{zlib.crc32(text.encode()):08x}"}}\n'.encode())


def seqs(run: Run) -> list[int]:
    tables = (TelemetryEvent, RolloutSample, Contribution)
    return sorted(seq for table in tables for seq in table.objects.filter(run=run).values_list("seq", flat=True))


def test_events_become_rows_of_their_kind(run):
    progress = Progress(step=2, total_steps=5, elapsed_s=1.5, eta_s=3, rollouts_generated=64, tokens_generated=640)
    started = Started(step=0, total_steps=5, agents=["A", "B"], device="cpu", versions={})
    write_spool(
        run.run_dir, 1, started, metrics(2, omega=1.5, source="B"), *rollouts(2, ["A"], random.Random(0)), progress
    )
    shipper(run).ship()
    run.refresh_from_db()
    assert (run.last_seq, run.step, run.total_steps) == (5, 2, 5)
    assert run.spool_offset == (run.run_dir / SPOOL_NAME).stat().st_size
    assert run.progress["tokens_generated"] == 640
    event = run.events.get(type="metrics")
    assert (event.seq, event.attempt, event.step, event.agent, event.source) == (2, 1, 2, "A", "B")
    assert event.payload == {"values": {"omega": 1.5}, "ratios": {}}
    rollout, contribution = run.rollouts.get(), run.contributions.get()
    assert (rollout.seq, rollout.completion, rollout.num_tokens) == (3, "<b>\\boxed{7}</b>", 9)
    assert (contribution.seq, contribution.omega, contribution.sequence_ratio) == (4, 1.0, 0.9)


def test_shipping_goes_on_where_it_was_and_replay_is_a_no_op(run):
    write_spool(run.run_dir, 1, *(metrics(step) for step in range(1, 4)))
    first = shipper(run)
    first.ship()
    write_spool(run.run_dir, 1, *(metrics(step) for step in range(4, 6)))
    assert [r["seq"] for r in first.ship().records] == [4, 5]
    assert first.ship().records == []
    fresh = shipper(run)  # a supervisor that starts anew
    assert fresh.reader.offset == (run.run_dir / SPOOL_NAME).stat().st_size
    assert fresh.ship().records == []
    Run.objects.filter(pk=run.pk).update(spool_offset=0)  # the offset is lost
    assert shipper(run).ship().records == []
    assert seqs(run) == [1, 2, 3, 4, 5]


def test_rows_that_are_there_already_are_kept(run):
    write_spool(run.run_dir, 1, metrics(1, x=1.0), metrics(2))
    TelemetryEvent.objects.create(run=run, seq=1, attempt=1, type="log", payload={"kept": True}, time=0)
    shipper(run).ship()
    assert seqs(run) == [1, 2]
    assert run.events.get(seq=1).payload == {"kept": True}


def test_crash_inside_the_transaction_leaves_nothing(run, monkeypatch):
    write_spool(run.run_dir, 1, metrics(1), metrics(2))
    with monkeypatch.context() as patch:
        patch.setattr(telemetry, "insert", lambda *_: (_ for _ in ()).throw(OperationalError("gone")))
        one = shipper(run)
        with pytest.raises(OperationalError):
            one.ship()
    run.refresh_from_db()
    assert (run.last_seq, run.spool_offset, seqs(run)) == (0, 0, [])
    one.ship()  # the same shipper tries again
    assert seqs(run) == [1, 2]


def test_batch_that_the_database_refused_is_stored_as_it_was(run, monkeypatch):
    """Its steps are seen once: tried again, step 1 does not go back behind step 2."""
    write_spool(run.run_dir, 1, *(metrics(step, x=float(step)) for step in (1, 2)))
    one = shipper(run)
    with monkeypatch.context() as patch:
        patch.setattr(telemetry, "insert", lambda *_: (_ for _ in ()).throw(OperationalError("database is locked")))
        for _ in range(2):
            with pytest.raises(OperationalError):
                one.ship()
    write_spool(run.run_dir, 1, metrics(3, x=3.0))
    while one.has_more:
        one.ship()
    assert list(run.events.values_list("type", "step")) == [("metrics", 1), ("metrics", 2), ("metrics", 3)]


def test_wrong_attempt_and_ended_run_are_refused(run):
    write_spool(run.run_dir, 1, metrics(1))
    with pytest.raises(LeaseLost):
        Shipper(run.pk, run.run_dir, 2).ship()
    run.transition_to(State.FAILED, reason="", attempt=1)
    with pytest.raises(LeaseLost):
        shipper(run).ship()
    assert seqs(run) == []


def test_line_being_written_is_left_for_later(run):
    write_spool(run.run_dir, 1, metrics(1), metrics(2))
    path = run.run_dir / SPOOL_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    one = shipper(run)
    one.ship()
    assert seqs(run) == [1]
    path.write_bytes(whole)
    one.ship()
    assert seqs(run) == [1, 2]


def test_batches_are_bounded_and_complete(run, monkeypatch):
    monkeypatch.setattr(spool_reader, "MAX_LINES", 10)
    write_spool(run.run_dir, 1, *(metrics(step) for step in range(1, 26)))
    one = shipper(run)
    assert [len(one.ship().records) for _ in range(4)] == [10, 10, 5, 0]
    assert seqs(run) == list(range(1, 26))


class TestReadingAhead:
    """On PostgreSQL, a full batch is stored while the next one is read; the order of both must not show."""

    @pytest.fixture(autouse=True)
    def server(self, monkeypatch):
        """Any database is taken for a server here."""
        monkeypatch.setattr(spool_reader, "MAX_LINES", 10)
        monkeypatch.setattr(telemetry, "reads_ahead", lambda: True)

    def test_backlog_is_stored_once_in_order(self, run):
        write_spool(run.run_dir, 1, *(metrics(step) for step in range(1, 36)))
        one = shipper(run)
        assert [len(one.ship().records) for _ in range(5)] == [10, 10, 10, 5, 0]
        assert seqs(run) == list(range(1, 36))

    def test_read_events_wait_for_those_before_them(self, run, monkeypatch):
        """The second batch is read while the first is refused: it comes after it, and only what is stored counts."""
        write_spool(run.run_dir, 1, *(metrics(step, x=float(step)) for step in range(1, 26)))
        one, offset = shipper(run), run.spool_offset
        with monkeypatch.context() as patch:
            patch.setattr(telemetry, "insert", lambda *_: (_ for _ in ()).throw(OperationalError("gone")))
            for _ in range(3):
                with pytest.raises(OperationalError):
                    one.ship()
        run.refresh_from_db()
        assert (one.last_seq, run.last_seq, run.spool_offset, seqs(run)) == (0, 0, offset, [])
        while one.has_more:
            one.ship()
            assert seqs(run) == list(range(1, one.last_seq + 1))
        assert list(run.events.values_list("type", "step")) == [("metrics", step) for step in range(1, 26)]

    def test_events_after_an_empty_reading_are_found(self, run, monkeypatch):
        """What is emitted after the reading ahead, before the end of the trainer, is there for the last call."""
        write_spool(run.run_dir, 1, *(metrics(step) for step in range(1, 11)))
        one = shipper(run)
        one.ship()
        write_spool(run.run_dir, 1, metrics(11))
        while one.has_more:
            one.ship()
        assert seqs(run) == list(range(1, 12))

    def test_reading_that_fails_loses_nothing(self, run, monkeypatch):
        write_spool(run.run_dir, 1, *(metrics(step) for step in range(1, 26)))
        one = shipper(run)
        real, calls = one.reader.read, []

        def read():
            calls.append(1)
            if len(calls) == 2:
                raise OSError("the disk does not answer")
            return real()

        monkeypatch.setattr(one.reader, "read", read)
        with pytest.raises(OSError, match="does not answer"):
            one.ship()
        while one.has_more:
            one.ship()
        assert seqs(run) == list(range(1, 26))

    def test_full_files_stay_until_they_are_stored(self, run, monkeypatch):
        monkeypatch.setattr(spool, "SEGMENT_BYTES", 600)
        run.run_dir.mkdir(parents=True, exist_ok=True)
        writer = SpoolWriter(run.run_dir, 1)
        for step in range(1, 61):
            writer.emit(metrics(step, x=1.0))
        writer.close()
        monkeypatch.setattr(spool_reader, "MAX_LINES", 1)
        one = shipper(run)
        while one.has_more:
            one.ship()
            kept = [last for last, _ in rotated(run.run_dir)]
            assert all(last > one.last_seq for last in kept[:-1])
            assert seqs(run) == list(range(1, one.last_seq + 1))
        assert seqs(run) == list(range(1, 61))


def test_text_that_databases_refuse_is_mended(run):
    run.run_dir.mkdir(parents=True)
    write_line(run, seq=1, attempt=1, time=0, type="log", level="info", message="a\x00b\ud800c\U0001f600")
    shipper(run).ship()
    assert run.events.get().payload["message"] == "a\ufffdb\ufffdc\U0001f600"


def test_names_cannot_forge_numbers(run):
    """Metrics pass as the text they are: a name that looks like the start of the numbers stays a name."""
    odd = 'A","values":{"x":2},"y":"'
    write_spool(run.run_dir, 1, metrics(1, odd, odd, **{odd: 1.0}))
    shipper(run).ship()
    event = run.events.get()
    assert (event.agent, event.source, event.payload) == (odd, odd, {"values": {odd: 1.0}, "ratios": {}})


def test_numbers_that_are_not_finite_arrive_as_null_and_their_kind(run):
    write_spool(run.run_dir, 1, metrics(1, loss=float("nan"), kl=float("inf")))
    shipper(run).ship()
    payload = run.events.get().payload
    assert payload["values"] == {"loss": None, "kl": None}
    assert payload["nonfinite"] == {"values.loss": "nan", "values.kl": "inf"}


@pytest.mark.parametrize(
    "record",
    [
        {"type": "metrics", "step": 10**30, "agent": "n" * 10_000, "values": {}},
        {"type": "metrics", "step": "soon", "agent": "A"},
        {"type": "rollout", "step": 1, "agent": "A", "reward": "high"},
        {"type": "contribution", "step": 1},
        {"type": "x" * 100, "step": None},
        {"type": "metrics", "step": 1, "agent": "A", "values": {"x": float("nan")}},
        {"type": "metrics", "step": -5, "agent": {"a": 1}},
    ],
)
def test_odd_event_does_not_hold_up_the_others(run, record):
    write_spool(run.run_dir, 1, metrics(1))
    write_line(run, seq=2, attempt=1, time=0, **record)
    write_line(run, seq=3, attempt=1, time=0, type="log", message="after it", level="info")
    shipper(run).ship()
    assert seqs(run) == [1, 2, 3]
    assert run.events.get(seq=3).payload["message"] == "after it"


@pytest.mark.parametrize(
    ("record", "time", "step"),
    [
        ({"time": 1700000000.5, "step": 4, "values": {"x": float("nan")}, "type": "evaluation"}, 1700000000.5, 4),
        ({"time": 1700000000.5, "step": "soon", "type": "metrics"}, 1700000000.5, None),
        ({"time": float("inf"), "step": 4, "type": "metrics"}, 0, 4),
        ({"time": 253402300800, "step": 4, "type": "metrics"}, 0, 4),  # the year 10000: no page could show it
    ],
)
def test_event_that_was_refused_keeps_its_time_and_step(run, record, time, step):
    write_spool(run.run_dir, 1, metrics(1))
    write_line(run, seq=2, attempt=1, agent="A", **record)
    shipper(run).ship()
    event = run.events.get(seq=2)
    assert (event.type, event.time, event.step) == ("log", time, step)
    assert "could not be stored" in event.payload["message"]


def test_damaged_line_is_told_in_its_place(run):
    write_spool(run.run_dir, 1, metrics(1), metrics(2))
    path = run.run_dir / SPOOL_NAME
    path.write_bytes(path.read_bytes().replace(b'"step":1', b'"step":9'))
    shipper(run).ship()
    assert seqs(run) == [1, 2]
    assert warnings(run) == ["Event 1 is missing: damaged or cut off in the run directory"]


def test_lines_that_are_gone_are_told_once_over_batches(run, monkeypatch):
    """Of 1 to 6, lines 2 to 4 are cut out after the first batch of one line."""
    monkeypatch.setattr(spool_reader, "MAX_LINES", 1)
    write_spool(run.run_dir, 1, *(metrics(step) for step in range(1, 7)))
    path = run.run_dir / SPOOL_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0])
    one = shipper(run)
    one.ship()
    path.write_bytes(b"".join([lines[0], *lines[4:]]))
    for _ in range(3):
        one.ship()
    assert seqs(run) == [1, 2, 5, 6]
    assert warnings(run) == ["Events 2 to 4 are missing: damaged or cut off in the run directory"]


def warnings(run: Run) -> list[str]:
    return [event.payload["message"] for event in run.events.filter(type="log").order_by("seq")]


class TestAdmission:
    def test_name_that_is_too_long_is_refused_and_said(self, run):
        write_spool(run.run_dir, 1, metrics(1, **{"n" * 10_000: 1.0}), metrics(1, "B", **{"n" * 200: 1.0}))
        shipper(run).ship()
        assert seqs(run) == [1, 2]
        (said,) = warnings(run)
        assert said.endswith("a name in it has 10,000 characters; at most 200 are allowed")
        assert run.events.get(seq=1).step == 1

    @pytest.mark.parametrize("per_event", [100_000, 100])
    def test_hundred_thousand_names_are_refused_and_the_rest_goes_on(self, run, per_event):
        """In one event, or in a thousand: of 100 each, 20 events make 2,000 names."""
        bodies = [
            metrics(1, f"agent {part}", **{f"m{part * per_event + name}": 1.0 for name in range(per_event)})
            for part in range(30 if per_event == 100 else 1)
        ]
        write_spool(run.run_dir, 1, metrics(1, m0=0.5), *bodies, metrics(2, m0=1.0))
        one = shipper(run)
        while one.ship().lines:
            pass
        run.refresh_from_db()
        assert seqs(run) == list(range(1, len(bodies) + 3))
        assert run.events.filter(type="metrics").count() == (22 if per_event == 100 else 2)
        assert all("more than 2,000 metric names" in said for said in warnings(run))
        assert run.events.filter(type="metrics").last().step == 2

    def test_step_back_in_time_is_refused_within_an_attempt_only(self, run):
        write_spool(run.run_dir, 1, metrics(5, x=1.0), metrics(5, "B"), metrics(4, x=2.0), metrics(6, x=3.0))
        write_spool(run.run_dir, 2, metrics(5, x=4.0))
        shipper(run).ship()
        assert seqs(run) == [1, 2, 3, 4, 5]
        (said,) = warnings(run)
        assert said.endswith("of A could not be stored: it goes back to step 4, after step 5")
        (series,) = read_series(run, {"x"})
        assert list(series.points()) == [(5, 4.0), (6, 3.0)]

    def test_word_of_an_older_attempt_is_refused(self, run):
        write_spool(run.run_dir, 2, metrics(1, x=1.0))
        write_line(run, seq=2, attempt=1, time=0, type="metrics", step=2, agent="A", values={"x": 9.0})
        shipper(run).ship()
        assert seqs(run) == [1, 2]
        assert warnings(run)[0].endswith("it is of attempt 1, after attempt 2")

    def test_line_that_is_too_long_is_refused_with_its_number(self, run, monkeypatch):
        monkeypatch.setattr(spool_reader, "MAX_LINE_BYTES", 1000)
        write_spool(run.run_dir, 1, metrics(1))
        write_line(run, seq=2, attempt=1, time=7.5, type="rollout", completion="x" * 5000)
        write_line(run, seq=3, attempt=1, time=8.0, type="log", level="info", message="after it")
        one = shipper(run)
        while one.ship().lines:
            pass
        assert seqs(run) == [1, 2, 3]
        assert warnings(run)[0].startswith("An event of 5,")
        assert run.events.get(seq=2).time == 7.5
        assert shipper(run).ship().records == []  # its offset is where it should be
        assert shipper(run).reader.offset == (run.run_dir / SPOOL_NAME).stat().st_size


class TestFullFiles:
    @pytest.fixture(autouse=True)
    def _small_files(self, monkeypatch):
        monkeypatch.setattr(spool, "SEGMENT_BYTES", 700)

    def emit(self, run: Run, first: int, last: int) -> None:
        run.run_dir.mkdir(parents=True, exist_ok=True)
        writer = SpoolWriter(run.run_dir, 1)
        for step in range(first, last + 1):
            writer.emit(metrics(step, x=1.0))
        writer.close()

    def test_all_files_are_stored_and_all_but_the_newest_full_one_removed(self, run):
        self.emit(run, 1, 60)
        assert len(rotated(run.run_dir)) > 5
        one = shipper(run)
        for _ in range(30):
            one.ship()
        assert seqs(run) == list(range(1, 61))
        assert len(rotated(run.run_dir)) == 1
        self.emit(run, 61, 62)  # a writer that starts anew
        one.ship()
        one.ship()
        assert seqs(run) == list(range(1, 63))

    def test_no_full_file_is_removed_before_it_is_stored(self, run, monkeypatch):
        self.emit(run, 1, 60)
        before = rotated(run.run_dir)
        with monkeypatch.context() as patch:
            patch.setattr(telemetry, "insert", lambda *_: (_ for _ in ()).throw(OperationalError("gone")))
            one = shipper(run)
            for _ in range(10):
                with pytest.raises(OperationalError):
                    one.ship()
        assert rotated(run.run_dir) == before

    @pytest.mark.parametrize("batch", [1, 3, 7, 2000])
    def test_file_set_aside_while_it_is_read_costs_and_doubles_nothing(self, run, monkeypatch, batch):
        monkeypatch.setattr(spool_reader, "MAX_LINES", batch)
        run.run_dir.mkdir(parents=True)
        writer = SpoolWriter(run.run_dir, 1)
        one, stored = shipper(run), []
        for step in range(1, 61):
            writer.emit(metrics(step, x=1.0))
            if step % 4 == 0:
                stored += [record["seq"] for record in one.ship().records]
            if step % 17 == 0:
                one = shipper(run)  # a supervisor that starts anew
        writer.close()
        for _ in range(200):
            stored += [record["seq"] for record in one.ship().records]
        assert stored == seqs(run) == list(range(1, 61))

    def test_file_set_aside_between_choosing_and_opening_it_is_not_passed_over(self, run, monkeypatch):
        """Nothing of it is stored yet: the new file of its name would be read from its beginning."""
        run.run_dir.mkdir(parents=True)
        writer = SpoolWriter(run.run_dir, 1)
        writer.emit(*(metrics(step, x=1.0) for step in range(1, 11)))  # more than 700 bytes
        one, choose = shipper(run), SpoolReader._file

        def chosen_too_early(self):
            found = choose(self)
            if not rotated(run.run_dir):
                writer.emit(metrics(11, x=1.0))
            return found

        monkeypatch.setattr(SpoolReader, "_file", chosen_too_early)
        for _ in range(4):
            one.ship()
        writer.close()
        assert seqs(run) == list(range(1, 12))

    def test_new_file_of_the_old_length_is_not_taken_for_the_old_one(self, run, monkeypatch):
        """The stored offset is the old file's length; the file of that name now holds other events."""
        monkeypatch.setattr(spool.time, "time", lambda: 1700000000.125)  # lines of one length
        self.emit(run, 1, 2)
        shipper(run).ship()
        path = run.run_dir / SPOOL_NAME
        size = path.stat().st_size
        path.rename(run.run_dir / "events.000000000002.jsonl")
        self.emit(run, 3, 4)
        assert path.stat().st_size == size
        one = shipper(run)
        one.ship()
        one.ship()
        assert seqs(run) == [1, 2, 3, 4]

    def test_torn_end_of_a_full_file_does_not_stop_the_files_after_it(self, run):
        """A power cut that lost the end of a file whose name was already written."""
        self.emit(run, 1, 20)
        _, path = rotated(run.run_dir)[0]
        path.write_bytes(path.read_bytes()[:-10])
        one = shipper(run)
        for _ in range(30):
            one.ship()
        run.refresh_from_db()
        assert run.last_seq == 20


@pytest.mark.parametrize("odd", [{"step": "x"}, {"total_steps": "x"}, {"step": [1]}, {"eta_s": float("inf")}])
def test_progress_that_no_column_can_hold_is_left_out_and_the_run_goes_on(run, odd):
    write_spool(
        run.run_dir,
        1,
        Progress(step=2, total_steps=5, elapsed_s=1.0, eta_s=1, rollouts_generated=8, tokens_generated=9),
    )
    write_line(run, seq=2, attempt=1, time=1.0, type="progress", **{"step": 3, "total_steps": 5} | odd)
    write_spool(run.run_dir, 1, metrics(3))
    shipper(run).ship()
    run.refresh_from_db()
    assert (run.last_seq, run.step, run.total_steps, run.progress["step"]) == (3, 2, 5, 2)
    assert seqs(run) == [1, 2, 3]


def test_without_redis_shipping_goes_on(run):
    write_spool(run.run_dir, 1, metrics(1))
    shipper(run).ship()  # the tests' Redis address has no server
    assert seqs(run) == [1]


class TestSeries:
    def test_columns_by_metric_agent_and_source(self, run):
        write_spool(
            run.run_dir,
            1,
            metrics(1, "A", capability=0.25),
            metrics(1, "A", "B", omega=1.5),
            Metrics(step=2, agent="A", values={"capability": 0.5}, ratios={"reward/mean": (3.0, 4.0)}),
            Metrics(step=2, agent="B", ratios={"reward/mean": (0.0, 0.0)}),
            Evaluation(step=2, agent="A", benchmark="b", metric="accuracy", value=0.5, correct=1, asked=2),
        )
        shipper(run).ship()
        found = {series.key: (series.steps.tolist(), series.numbers()) for series in read_series(run)}
        assert found == {
            ("capability", "A", ""): ([1, 2], [0.25, 0.5]),
            ("omega", "A", "B"): ([1], [1.5]),
            ("reward/mean", "A", ""): ([2], [0.75]),  # 3 of 4
            ("reward/mean", "B", ""): ([2], [None]),  # of none
            ("accuracy", "A", ""): ([2], [0.5]),
        }
        assert [series.metric for series in read_series(run, {"omega"})] == ["omega"]
        assert {series.agent for series in read_series(run, agents={"B"})} == {"B"}

    def test_highest_attempt_of_a_step_wins(self, run):
        write_spool(run.run_dir, 1, *(metrics(step, x=float(step)) for step in (1, 2, 3)))
        write_spool(run.run_dir, 2, *(metrics(step, x=10.0 * step) for step in (2, 3, 4)))
        shipper(run).ship()
        (series,) = read_series(run)
        assert list(series.points()) == [(1, 1.0), (2, 20.0), (3, 30.0), (4, 40.0)]

    def test_csv_has_the_plotted_numbers(self, run, client):
        write_spool(run.run_dir, 1, *(metrics(step, x=step / 3) for step in (1, 2)))
        shipper(run).ship()
        (series,) = read_series(run)
        assert [(step, value) for step, _, _, _, value in metric_rows(run)] == list(series.points())


def test_every_field_of_a_contribution_arrives_in_its_row_and_is_served(run, client):
    event = ContributionEvent(
        step=3,
        agent="A",
        source="B",
        prompt_id="q7",
        sample=2,
        num_tokens=11,
        advantage=0.5,
        sequence_ratio=0.8,
        clipped_ratio=0.9,
        clip_side="lower",
        omega=1.25,
        weight=0.50625,
        mini_batch=1,
        drop_reason="overflow",
        reward=1.0,
        source_num_tokens=9,
        alpha=2.0,
        capability=0.25,
        source_capability=0.75,
        start_ratio=0.5,
        age=2,
        importance=0.75,
    )
    sent = event.model_dump(exclude={"type"})
    assert not [name for name, field in ContributionEvent.model_fields.items() if sent.get(name) == field.default]
    write_spool(run.run_dir, 1, event)
    shipper(run).ship()
    assert run.contributions.values(*sent).get() == sent
    client.force_login(run.owner)
    served = client.get(f"/api/v1/runs/{run.pk}/contributions?step=3").json()
    assert served["items"] == [sent | {"attempt": 1, "seq": 1}]


def test_contributions_of_a_repeated_step_are_those_of_its_latest_attempt(run, client):
    for seq, attempt in ((1, 1), (2, 2)):
        run.contributions.create(seq=seq, attempt=attempt, step=3, agent="A", source="B", sample=seq, num_tokens=1)
    client.force_login(run.owner)
    served = client.get(f"/api/v1/runs/{run.pk}/contributions?step=3").json()
    assert (served["count"], [row["sample"] for row in served["items"]]) == (1, [2])
    assert client.get(f"/api/v1/runs/{run.pk}/contributions?step=4").json()["items"] == []
    # Contributions are recorded in some steps only: without a step, of the last one that has them.
    Run.objects.filter(pk=run.pk).update(step=5)
    latest = client.get(f"/api/v1/runs/{run.pk}/contributions").json()
    assert (latest["step"], latest["count"]) == (3, 1)
