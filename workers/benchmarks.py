"""Questions with reference answers, read from JSONL and split into training and held-out sets.

First station of a run, before any model is loaded: every line is checked, and an error names the line and what is
wrong with it. A question that stands in the held-out set is never trained on. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.spec_sections import DataSpec

MAX_LINE_BYTES = 1_000_000
MAX_QUESTIONS = 1_000_000
MAX_ID_LENGTH = 200  # characters, as the database stores it


class BenchmarkError(ValueError):
    """A benchmark file that cannot be used; the text says which file, which line and why."""


@dataclass(frozen=True)
class Question:
    """One question. `subject` and `difficulty` name the slices it is reported under, or are empty."""

    id: str
    question: str
    answer: str
    subject: str = ""
    difficulty: str = ""


@dataclass(frozen=True)
class Split:
    """The two sets, and how many lines were left out: repeated lines, and training questions that are held out."""

    train: list[Question]
    held_out: list[Question]
    num_repeated: int
    num_overlapping: int


class _Refused(ValueError):
    """What is wrong with one line."""


def load_questions(data: DataSpec) -> tuple[list[Question], list[Question]]:
    """Training and held-out questions of a run. Errors: BenchmarkError."""
    split = split_questions(data)
    return split.train, split.held_out


def split_questions(data: DataSpec) -> Split:
    """Read and split, with the counts of what was left out. Errors: BenchmarkError."""
    questions, num_repeated = read_questions(Path(data.train_path), data.question_field, data.answer_field)
    if data.eval_path is None:
        train, held_out = _hold_out(questions, data.held_out_fraction)
        return Split(train, held_out, num_repeated, 0)
    held_out, repeated_held_out = read_questions(Path(data.eval_path), data.question_field, data.answer_field)
    seen = {_key(question.question) for question in held_out}
    train = [question for question in questions if _key(question.question) not in seen]
    if not train:
        raise BenchmarkError(f"{data.train_path}: every question is also in {data.eval_path}: nothing left to train on")
    return Split(train, held_out, num_repeated + repeated_held_out, len(questions) - len(train))


def read_questions(path: Path, question_field: str, answer_field: str) -> tuple[list[Question], int]:
    """All questions of a file in its order, and how many repeated lines were left out. Errors: BenchmarkError."""
    found: list[Question] = []
    line_of_id: dict[str, int] = {}
    first_with: dict[str, tuple[int, str]] = {}
    num_repeated = 0
    for number, line in _numbered_lines(path):
        try:
            question = _parse(line, question_field, answer_field)
            key = _key(question.question)
            if key in first_with:
                first_line, answer = first_with[key]
                if answer != question.answer:
                    raise _Refused(f"the question of line {first_line} again, with another answer")
                num_repeated += 1
                continue
            if question.id in line_of_id:
                raise _Refused(f"id {question.id[:80]!r} is already used by line {line_of_id[question.id]}")
        except _Refused as error:
            raise BenchmarkError(f"{path.name}, line {number}: {error}") from None
        first_with[key] = (number, question.answer)
        line_of_id[question.id] = number
        found.append(question)
        if len(found) > MAX_QUESTIONS:
            raise BenchmarkError(f"{path.name}: more than {MAX_QUESTIONS} questions")
    if not found:
        raise BenchmarkError(f"{path.name}: no questions in it (one JSON object a line is needed)")
    return found, num_repeated


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and texts of the lines that are not blank."""
    if not path.is_file():
        raise BenchmarkError(f"{path}: no such file")
    with open(path, "rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                raise BenchmarkError(f"{path.name}, line {number}: longer than {MAX_LINE_BYTES} bytes")
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise BenchmarkError(f"{path.name}, line {number}: not UTF-8 (byte {error.start + 1})") from None
            if text.strip():
                yield number, text.rstrip("\r\n")


def _no_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _Refused(f"key {next(key for key in keys if keys.count(key) > 1)[:80]!r} stands there twice")
    return record


def _no_constants(text: str) -> Any:
    raise _Refused(f"{text} is not a JSON number")


def _decode(line: str) -> dict[str, Any]:
    """The JSON object of a line. Error: _Refused."""
    try:
        # Numbers stay as they are written: 2.50 is not 2.5, and no number overflows.
        record = json.loads(
            line,
            object_pairs_hook=_no_repeated_keys,
            parse_constant=_no_constants,
            parse_int=str,
            parse_float=str,
        )
    except json.JSONDecodeError as error:
        raise _Refused(f"not JSON (column {error.colno})") from None
    except RecursionError:
        raise _Refused("nested too deeply") from None
    if not isinstance(record, dict):
        raise _Refused(f"a JSON object is needed, not {_kind(record)}")
    return record


def _parse(line: str, question_field: str, answer_field: str) -> Question:
    """The question of a line. Error: _Refused."""
    record = _decode(line)
    question = _text(record, question_field)
    answer = _text(record, answer_field)
    digest = hashlib.sha256(_key(question).encode("utf-8", "surrogatepass")).hexdigest()
    given = _text(record, "id") if record.get("id") not in (None, "") else ""
    if len(given) > MAX_ID_LENGTH:
        raise _Refused(f"'id' has {len(given)} characters, {MAX_ID_LENGTH} at most")
    return Question(
        id=given or f"q-{digest[:12]}",
        question=question,
        answer=answer,
        subject=_text(record, "subject") if record.get("subject") not in (None, "") else "",
        difficulty=_text(record, "difficulty") if record.get("difficulty") not in (None, "") else "",
    )


def _text(record: dict[str, Any], field: str) -> str:
    """A field as text (`_decode` has left numbers as text). Error: _Refused."""
    if field not in record:
        keys = ", ".join(sorted(record))[:200]
        raise _Refused(f"no key {field!r} (keys here: {keys or 'none'})")
    value = record[field]
    if not isinstance(value, str):
        raise _Refused(f"{field!r} must be text or a number, not {_kind(value)}")
    if not value.strip():
        raise _Refused(f"{field!r} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, as "\ud800" in JSON
        raise _Refused(f"{field!r} holds half a character (a lone surrogate)") from None
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a text or a number"}
    return names[type(value)]


def _key(question: str) -> str:
    """What makes two questions the same: their text, but for spaces."""
    return " ".join(question.split())


def _place(question: Question) -> float:
    """A stable number from 0 to 1, by the question's text alone."""
    digest = hashlib.sha256(b"held out:" + _key(question.question).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _hold_out(questions: list[Question], fraction: float) -> tuple[list[Question], list[Question]]:
    """Split by hash, so that adding or moving lines changes no other question's side; neither side is left empty."""
    if fraction == 0 or len(questions) < 2:
        return list(questions), []
    places = {question.id: _place(question) for question in questions}
    by_place = sorted(places.values())
    limit = min(max(fraction, by_place[0]), by_place[-2])
    train = [question for question in questions if places[question.id] > limit]
    held_out = [question for question in questions if places[question.id] <= limit]
    return train, held_out
