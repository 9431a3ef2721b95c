"""The spool keeps every event once and in order, whatever tears it."""

import json
import math
import random
import zlib

import pytest

from workers.contract.events import DamagedLine, Log, Metrics, decode, encode
from workers.contract.spool import SPOOL_NAME, SpoolWriter, read_records


def records(run_dir):
    return [record for _, record in read_records(run_dir / SPOOL_NAME)]


def test_seq_counts_from_one_without_gaps_over_attempts(tmp_path):
    first = SpoolWriter(tmp_path, attempt=1)
    first.emit(Log(message="a"), Log(message="b"))
    first.close()
    second = SpoolWriter(tmp_path, attempt=2)
    second.emit(Log(message="c"))
    second.close()
    assert [(r["seq"], r["attempt"], r["message"]) for r in records(tmp_path)] == [
        (1, 1, "a"),
        (2, 1, "b"),
        (3, 2, "c"),
    ]


def test_each_line_is_json_that_any_tool_reads(tmp_path):
    writer = SpoolWriter(tmp_path, attempt=1)
    writer.emit(Log(message='two\nlines, "quotes" and \u2028'))
    writer.close()
    lines = (tmp_path / SPOOL_NAME).read_bytes().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["message"] == 'two\nlines, "quotes" and \u2028'


def test_torn_tail_is_cut_and_its_seq_given_again(tmp_path):
    writer = SpoolWriter(tmp_path, attempt=1)
    writer.emit(Log(message="whole"), Log(message="torn"))
    writer.close()
    path = tmp_path / SPOOL_NAME
    path.write_bytes(path.read_bytes()[:-9])
    assert [r["message"] for r in records(tmp_path)] == ["whole"]
    again = SpoolWriter(tmp_path, attempt=2)
    again.emit(Log(message="next"))
    again.close()
    assert [(r["seq"], r["message"]) for r in records(tmp_path)] == [(1, "whole"), (2, "next")]


def test_spool_is_cut_at_a_damaged_line_and_the_rest_is_kept_beside_it(tmp_path):
    writer = SpoolWriter(tmp_path, attempt=1)
    writer.emit(Log(message="whole"), Log(message="damaged"), Log(message="behind"))
    writer.close()
    path = tmp_path / SPOOL_NAME
    path.write_bytes(path.read_bytes().replace(b"damaged", b"demaged"))
    again = SpoolWriter(tmp_path, attempt=2)
    assert again.damage.startswith(
        "events lost: the line of event 2 in events.jsonl is damaged (checksum does not match"
    )
    again.emit(Log(message="next"))
    again.close()
    assert [(r["seq"], r["attempt"], r["message"]) for r in records(tmp_path)] == [(1, 1, "whole"), (2, 2, "next")]
    kept = (tmp_path / "events.jsonl.damaged").read_text().splitlines()
    assert [json.loads(line)["message"] for line in kept] == ["demaged", "behind"]
    assert SpoolWriter(tmp_path, attempt=3).damage == ""


def test_reading_goes_on_at_an_offset(tmp_path):
    writer = SpoolWriter(tmp_path, attempt=1)
    writer.emit(Log(message="a"), Log(message="b"))
    (offset, _), _ = read_records(tmp_path / SPOOL_NAME)
    assert [r["message"] for _, r in read_records(tmp_path / SPOOL_NAME, offset)] == ["b"]
    writer.close()


@pytest.mark.parametrize("position", [3, 30, -4])
def test_one_flipped_byte_is_noticed(position):
    line = bytearray(encode(1, 1, 0.0, Log(message="hello, world")))
    line[position] ^= 1
    with pytest.raises(DamagedLine):
        decode(bytes(line))


def test_line_that_is_nested_too_deeply_is_damaged():
    text = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(DamagedLine, match="too deeply"):
        decode(b'%b,"crc":"%08x"}\n' % (text[:-1], zlib.crc32(text)))


def test_numbers_that_are_not_finite_travel_as_null_with_their_kind():
    body = Metrics(step=1, agent="a", values={"x": math.nan, "y": -math.inf, "z": 1.5}, ratios={"r": (math.inf, 2.0)})
    record = decode(encode(1, 1, 0.0, body))
    assert record["values"] == {"x": None, "y": None, "z": 1.5}
    assert record["ratios"] == {"r": [None, 2.0]}
    assert record["nonfinite"] == {"values.x": "nan", "values.y": "-inf", "ratios.r.0": "inf"}


TEXTS = [
    'plain "quotes" \\ \n\t',
    "\x00 \x1b \x7f",
    "\u2028 ä 日本 \U0001f600",
    "half \ud800 pair",
    "NaN and Infinity",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_comes_back_as_it_was(text):
    line = encode(3, 2, 1.23456, Log(message=text))
    assert line.count(b"\n") == 1
    record = decode(line)
    assert (record["seq"], record["attempt"], record["time"], record["message"]) == (3, 2, 1.235, text)
    assert list(record)[:4] == ["seq", "attempt", "time", "type"]
    assert "nonfinite" not in record


def test_every_finite_number_comes_back_to_the_last_bit():
    chance = random.Random(0)
    numbers = [chance.uniform(-1, 1) * 10.0 ** chance.randint(-320, 308) for _ in range(2000)]
    numbers += [0.0, -0.0, 5e-324, 1.7976931348623157e308, 2.0**53 + 2, 1e16, 1e-5, 0.1 + 0.2]
    values = {str(place): number for place, number in enumerate(numbers)}
    found = decode(encode(1, 1, 0.0, Metrics(step=1, agent="a", values=values)))["values"]
    assert [number.hex() for number in found.values()] == [number.hex() for number in numbers]
    assert decode(encode(1, 1, 0.0, Metrics(step=1, agent="a", values={"x": None})))["values"] == {"x": None}
