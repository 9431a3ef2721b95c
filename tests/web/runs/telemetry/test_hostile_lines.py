"""Lines that no trainer of ours writes, and readings that fail: what is whole around them is stored, once."""

import json
import time
import zlib

import pytest

from hacrl_web.runs.models import Run, Worker
from hacrl_web.runs.telemetry import spool_reader, tables
from hacrl_web.runs.telemetry.admission import Admission, EventRefused
from hacrl_web.runs.telemetry.metric_series import event_numbers, read_series
from hacrl_web.runs.telemetry.scores import score_of
from hacrl_web.runs.telemetry.shipper import Shipper
from tests.support.web.factories import make_run, metrics, write_spool
from workers.contract.events import Log
from workers.contract.spool import SPOOL_NAME

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(db):
    """A claimed run, attempt 1."""
    return Run.objects.claim(make_run().pk, Worker("host", 1, 0.0, "here"))


def write_text(run: Run, text: str) -> None:
    """A line with this JSON object and a correct checksum."""
    with open(run.run_dir / SPOOL_NAME, "ab") as spool:
        spool.write(f'{text[:-1]},"crc":"{zlib.crc32(text.encode()):08x}"}}\n'.encode())


def ship_all(run: Run) -> None:
    one = Shipper(run.pk, run.run_dir, run.attempt)
    while one.has_more:
        one.ship()


HEAD = '{"seq":2,"attempt":1,"time":1.5,'
METRICS = HEAD + '"type":"metrics","step":1,"agent":"B","source":null'
# What is wrong, and the line of event 2; of event 3 where event 2 is missing before it.
LINES = {
    "deep, with a NUL": HEAD + '"type":"log","level":"info","message":"\\u0000","x":' + "[" * 5000 + "]" * 5000 + "}",
    "deep numbers": METRICS + ',"values":{"loss":' + "[" * 500 + "]" * 500 + '},"ratios":{}}',
    "thousands of digits": METRICS + ',"values":{"loss":' + "9" * 5000 + '},"ratios":{}}',
    "half of a pair in upper case": METRICS + ',"values":{"\\uD800":1.0},"ratios":{}}',
    "payload that is a number": METRICS + ',"payload text":5}',
    "payload that is a text": HEAD + '"type":"log","payload text":"[1]","level":"info","message":"x"}',
    "number that is true": METRICS.replace(":2,", ":true,", 1) + ',"values":{},"ratios":{}}',
    "values that are a number": METRICS + ',"values":5,"ratios":{}}',
    "value that is a text": METRICS + ',"values":{"loss":"1"},"ratios":{}}',
    "value that is a list": METRICS + ',"values":{"loss":[1,2]},"ratios":{}}',
    "value beyond every number": METRICS + ',"values":{"loss":1e999},"ratios":{}}',
    "ratio that is a number": METRICS + ',"values":{},"ratios":{"loss":1}}',
    "no JSON": METRICS + ',"values":{"loss":-},"ratios":{}}',
    "evaluation without a value": HEAD + '"type":"evaluation","step":1,"agent":"A"}',
    "evaluation whose value is a text": HEAD
    + '"type":"evaluation","step":1,"agent":"A","benchmark":"b","metric":"accuracy","value":"x","correct":1,"asked":1}',
    "progress of texts": HEAD + '"type":"progress","step":"x","total_steps":[],"phase_s":{"rollout":"long"}}',
    "settled settings that are a list": HEAD + '"type":"started","step":0,"total_steps":1,"agents":"A","settled":[]}',
    "score beyond sums": HEAD
    + '"type":"evaluation","step":1,"agent":"A","benchmark":"b","metric":"accuracy","value":1e308,"correct":1,'
    '"asked":1}',
    "versions that are a number": HEAD
    + '"type":"started","step":0,"total_steps":1,"agents":["A"],"device":"cpu","versions":5}',
    "scores of a harness that are a number": HEAD
    + '"type":"harness","agent":"A","harness":"h","version":"1","task":"t","scores":5}',
    "reward that is a text": HEAD
    + '"type":"rollout","step":1,"agent":"A","prompt_id":"p","sample":0,"prompt":"a","completion":"b","answer":"c",'
    '"reward":"inf","finish_reason":"stop","num_tokens":1,"mean_logp":-1.0}',
    "turn of nobody": HEAD
    + '"type":"rollout","step":1,"agent":"A","prompt_id":"p","sample":0,"prompt":"a","completion":"b","answer":"c",'
    '"reward":1.0,"finish_reason":"stop","num_tokens":1,"mean_logp":-1.0,'
    '"turns":[{"role":"zzz","is_failed":false,"text":"x"}]}',
    "evaluation with the mark of metrics": HEAD
    + '"type":"evaluation","step":1,"agent":"A","benchmark":"b","metric":"accuracy","value":0.5,"correct":1,"asked":2,'
    '"x":{"type":"metrics"},"values":{},"metric":"accuracy","value":"abc"}',
    "metrics of another type at the end": METRICS + ',"values":5,"type":"zz"}',
    "evaluation with very many estimates": HEAD
    + '"type":"evaluation","step":1,"agent":"A","benchmark":"b","metric":"accuracy","value":0.5,"correct":1,"asked":2,'
    f'"estimates":{json.dumps(dict.fromkeys(map(str, range(20_001)), 0.5))}}}',
    "no time after a gap": '{"seq":3,"attempt":1,"type":"log","level":"info","message":"x"}',
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_line_of_no_trainer_of_ours_holds_up_nothing_and_breaks_no_page(run, line):
    write_spool(run.run_dir, 1, metrics(1, loss=1.0))
    write_text(run, line)
    write_text(run, '{"seq":4,"attempt":1,"time":2.0,"type":"log","level":"info","message":"after it"}')
    ship_all(run)
    run.refresh_from_db()
    assert run.last_seq == 4
    for payload in run.events.values_list("payload", flat=True):
        assert isinstance(payload, dict)
        text = json.dumps(payload, ensure_ascii=False)
        text.encode()
        assert text.count("[") <= 200  # what readers of payloads take
    assert run.events.get(seq=4).payload["message"] == "after it"
    assert not run.rollouts.exists()
    assert not run.events.exclude(type__in=("metrics", "log")).exists()
    assert score_of(run) is None
    assert [series.key for series in read_series(run, {"loss"}, {"A"})] == [("loss", "A", "")]


def test_line_that_is_true_as_a_number_is_no_event(run):
    write_spool(run.run_dir, 1)
    write_text(run, '{"seq":true,"attempt":1,"time":1.5,"type":"log","level":"info","message":"x"}')
    write_spool(run.run_dir, 1, Log(message="y"))
    ship_all(run)
    assert "x" not in [payload["message"] for payload in run.events.values_list("payload", flat=True)]


def test_shape_with_many_numbers_between_two_texts_costs_no_time():
    """As one pattern it was tried in all ways of parting them: seconds with 14, for ever with 30."""
    admission = Admission()
    record = {"type": "metrics", "attempt": 1, "step": 1, "agent": "A", "source": None}
    began = time.process_time()
    for numbers in ([1] * 30 + [[1]], [1] * 30 + [[1]], [1] * 30 + [[1]], [[1]] + [1] * 60):
        text = json.dumps({"values": {"x": 1.0}, "other": numbers}, separators=(",", ":"))
        admission.check(record, text)
    assert time.process_time() - began < 1
    refused = json.dumps({"values": {"x": 1.0}, "nonfinite": [1, [1]]})
    with pytest.raises(EventRefused, match="nonfinite"):
        admission.check(record, refused)


def test_nul_behind_a_whole_object_is_a_damaged_line(run):
    """SQLite's check of JSON ends there."""
    write_spool(run.run_dir, 1, *(metrics(step, a=1.0, b=2.0) for step in range(1, 5)))
    text = '{"seq":5,"attempt":1,"time":1.5,"type":"metrics","step":5,"agent":"A","source":null,'
    write_text(run, text + '"values":{"a":1.0}}\0 ,"b":2.0}}')
    write_text(run, '{"seq":6,"attempt":1,"time":2.0,"type":"log","level":"info","message":"after it"}')
    ship_all(run)
    assert not any("\0" in str(payload) for payload in run.events.values_list("payload", flat=True))
    assert run.events.filter(type="metrics").count() == 4
    assert run.events.get(seq=6).payload["message"] == "after it"


PAYLOADS = ["5", '{"values":5,"ratios":[1]}', "[" * 999 + "]" * 999, '{"values":{"x":' + "9" * 5000 + "}}"]


@pytest.mark.parametrize("text", PAYLOADS, ids=["number", "numbers", "deep", "digits"])
def test_payload_without_numbers_has_none(text):
    assert list(event_numbers(text)) == []


def test_rows_that_cannot_be_made_ahead_are_made_again(run, monkeypatch):
    """Such as for want of memory: the events are read, and would be passed over."""
    write_spool(run.run_dir, 1, *(metrics(step) for step in range(1, 4)))
    real, calls = tables.rows_of, []

    def rows_of(*arguments):
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError
        return real(*arguments)

    monkeypatch.setattr(tables, "rows_of", rows_of)
    ship_all(run)
    assert list(run.events.order_by("seq").values_list("seq", "type")) == [(seq, "metrics") for seq in (1, 2, 3)]


def test_events_before_a_failure_of_the_disk_are_read_again_as_they_are(run, monkeypatch):
    """Their steps do not go back behind those that were read before the failure."""
    write_spool(run.run_dir, 1, *(metrics(step) for step in range(1, 6)))
    real, calls = spool_reader._parse, []

    def parse(line):
        calls.append(1)
        if len(calls) == 4:
            raise OSError("the disk does not answer")
        return real(line)

    monkeypatch.setattr(spool_reader, "_parse", parse)
    one = Shipper(run.pk, run.run_dir, run.attempt)
    with pytest.raises(OSError, match="does not answer"):
        one.ship()
    while one.has_more:
        one.ship()
    assert list(run.events.order_by("seq").values_list("type", "step")) == [("metrics", step) for step in range(1, 6)]


def test_payload_of_a_known_shape_with_other_values_is_refused():
    """Payloads whose shape has come before are matched by a pattern, which has to tell these from numbers."""
    admission = Admission()
    fields = {"attempt": 1, "type": "metrics", "step": 1, "agent": "A"}
    plain = '{"values":{"loss":1.5,"kl":null},"ratios":{"reward":[2.0,4]}}'
    for text in (plain, plain.replace("1.5", "-1e-07"), plain):
        admission.check(dict(fields), text)
    assert admission._patterns
    for other in ("[1]", "{}", '"1"'):
        with pytest.raises(EventRefused):
            admission.check(dict(fields), plain.replace("1.5", other))
    for other in ("5", "{}", "[[2.0],4]", '["2.0",4]'):
        with pytest.raises(EventRefused):
            admission.check(dict(fields), plain.replace("[2.0,4]", other))
