"""Rows of JSONL, CSV and Parquet: what is read as it is written, and what is refused with its place."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from workers.questions.files import BenchmarkError, Source

pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")


def rows(path: Path, name: str = "") -> list[tuple[int, dict[str, Any]]]:
    return list(Source(path, name).rows())


def file_of(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet_of(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def error_of(path: Path, name: str = "") -> str:
    with pytest.raises(BenchmarkError) as caught:
        rows(path, name)
    return str(caught.value)


def test_csv_keeps_quoted_commas_quotes_and_lines(tmp_path):
    path = file_of(tmp_path, "q.csv", '\ufeffquestion,answer\r\n"a, ""b""\nc",01.50\r\n\r\nd,2\r\n')
    assert rows(path) == [
        (3, {"question": 'a, "b"\nc', "answer": "01.50"}),
        (5, {"question": "d", "answer": "2"}),
    ]


@pytest.mark.parametrize(("name", "separator"), [("q.csv", ";"), ("q.tsv", "\t"), ("q.csv", "|")])
def test_csv_is_read_with_the_separator_of_its_first_line(tmp_path, name, separator):
    path = file_of(tmp_path, name, f"question{separator}answer\n1,5{separator}2\n")
    assert rows(path) == [(2, {"question": "1,5", "answer": "2"})]


@pytest.mark.parametrize(("name", "separator"), [("q.csv", ";"), ("q.tsv", "\t")])
def test_blank_lines_before_the_header_do_not_choose_the_separator(tmp_path, name, separator):
    path = file_of(tmp_path, name, f"\r\n  \r\nquestion{separator}answer\r\n1,5{separator}2\r\n")
    assert rows(path) == [(4, {"question": "1,5", "answer": "2"})]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("question,answer\na,b,c\n", "line 2: 3 cells; the header has 2"),
        ("question,question\na,b\n", "line 1: column 'question' appears twice"),
        ('question,answer\n"open,1\n', "line 2: not CSV (unexpected end of data)"),
        ('question,answer\n"a"b,1\n', "line 2: not CSV"),
        ("question,answer\n" + "x" * 1_000_001, "line 2: longer than 1000000 bytes"),
        ('question,answer\n"' + ("x" * 900 + "\n") * 2000, "not CSV (field larger than field limit"),
        (",".join(map(str, range(501))) + "\n", "line 1: 501 columns, 500 at most"),
        (b"question,answer\na,\xff\n", "line 2: not UTF-8 (byte 3)"),
    ],
)
def test_broken_csv_is_refused_with_its_line(tmp_path, content, said):
    assert said in error_of(file_of(tmp_path, "q.csv", content))


def test_jsonl_has_as_many_columns_as_the_others(tmp_path):
    line = json.dumps({str(number): 1 for number in range(501)})
    assert "line 1: 501 keys, 500 at most" in error_of(file_of(tmp_path, "q.jsonl", line))


def test_repeated_key_among_many_is_found_in_one_pass(tmp_path):
    line = "{" + ",".join(f'"{number}":0' for number in range(90_000)) + ',"89999":0}'
    begin = time.process_time()
    assert "line 1: key '89999' appears twice" in error_of(file_of(tmp_path, "q.jsonl", line))
    assert time.process_time() - begin < 2  # each against each would take minutes


def test_short_csv_row_lacks_its_last_cells(tmp_path):
    assert rows(file_of(tmp_path, "q.csv", "question,answer,subject\na,b\n")) == [(2, {"question": "a", "answer": "b"})]


def test_parquet_numbers_become_text_and_whole_floats_lose_their_zero(tmp_path):
    path = parquet_of(tmp_path / "q.parquet", {"question": ["a", "b"], "answer": [27.0, 2.5], "n": [7, None]})
    assert rows(path) == [
        (1, {"question": "a", "answer": "27", "n": "7"}),
        (2, {"question": "b", "answer": "2.5", "n": None}),
    ]


def test_parquet_lists_and_pictures_are_no_texts(tmp_path):
    columns = {"q": ["a"], "final_answer": [["2"]], "image": pyarrow.array([b"\xff\xd8"], pyarrow.binary())}
    assert rows(parquet_of(tmp_path / "q.parquet", columns)) == [(1, {"q": "a", "final_answer": ["2"], "image": None})]


def test_parquet_reads_only_the_columns_that_are_asked_for(tmp_path):
    path = parquet_of(tmp_path / "q.parquet", {"question": ["a"], "answer": ["1"], "image": ["x" * 1000]})
    assert list(Source(path).rows(["question", "answer", "absent"])) == [(1, {"question": "a", "answer": "1"})]


def test_parquet_nan_is_a_missing_value(tmp_path):
    """pandas writes a missing whole number so, also in columns that nobody asks for."""
    path = parquet_of(tmp_path / "q.parquet", {"question": ["a", "b"], "answer": [1.0, float("nan")]})
    assert rows(path) == [(1, {"question": "a", "answer": "1"}), (2, {"question": "b", "answer": None})]


def test_parquet_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = parquet_of(tmp_path / "q.parquet", {"question": ["x" * 1000] * 5000, "answer": ["1"] * 5000})
    assert path.stat().st_size < 50_000  # the same text again and again
    monkeypatch.setattr("workers.questions.files.MAX_QUESTIONS", 4999)
    assert error_of(path) == "q.parquet: 5000 rows, 4999 at most: split it"
    monkeypatch.undo()
    plain = parquet_of(tmp_path / "p.parquet", {"question": ["x" * 1000] * 5000}, use_dictionary=False)
    monkeypatch.setattr("workers.questions.files.MAX_UNPACKED_BYTES", 2**20)
    assert "unpacks to 5 MiB, 1 at most" in error_of(plain)


def test_parquet_that_says_one_text_for_all_rows_is_refused_as_it_unpacks(tmp_path, monkeypatch):
    path = parquet_of(tmp_path / "q.parquet", {"question": ["x" * 10_000] * 5000})
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("workers.questions.files.MAX_UNPACKED_BYTES", 2**20)
    assert error_of(path) == "q.parquet: unpacks to more than 1 MiB: split it"


@pytest.mark.parametrize("cut", [4, 100, -5])
def test_damaged_parquet_is_refused(tmp_path, cut):
    whole = parquet_of(tmp_path / "q.parquet", {"question": ["a"] * 100, "answer": ["1"] * 100}).read_bytes()
    assert "a damaged Parquet file" in error_of(file_of(tmp_path, "cut.parquet", whole[:cut]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04" + bytes(40), "a zip archive or a workbook, not JSONL, CSV or Parquet: unpack it first"),
        (b"\x1f\x8b\x08" + bytes(40), "a gzip file"),
        (b"x" * 257 + b"ustar" + bytes(40), "a tar archive"),
        (bytes(40), "contains zero bytes"),
        ("{}".encode("utf-16"), "UTF-16 text: save it as UTF-8"),
    ],
)
def test_what_is_no_file_of_questions_is_called_what_it_is(tmp_path, content, said):
    assert error_of(file_of(tmp_path, "upload", content), "mine.jsonl").startswith("mine.jsonl: " + said)


def test_file_named_parquet_that_is_none_is_refused(tmp_path):
    assert "not a Parquet file" in error_of(file_of(tmp_path, "q.parquet", '{"question": "a"}'))


def test_share_read_grows_to_one(tmp_path):
    source = Source(file_of(tmp_path, "q.jsonl", '{"a": 1}\n' * 10))
    shares = [source.share_read for _ in source.rows()]
    assert shares == sorted(shares)
    assert (shares[0], source.share_read) == (0.1, 1.0)
