"""The questions of a registered benchmark, a page at a time: read from its files, the web holds one page of them.

A page begins at a line. Where nothing is sought the index beside the file leads there; a search reads on from there, as
long as its time lasts, and says where it stopped.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hacrl_web.registry.models import Benchmark
from workers.contract.spec.data import split_position

PAGE_SIZE = 50
LINES_PER_INDEX = 50  # as workers.questions.canonical writes it
OTHER_SLICES = "others"  # as workers.questions.canonical counts what has no place among the named ones
SEARCH_S = 1.0
SHOWN_LETTERS = 4000


@dataclass(frozen=True)
class QuestionSearch:
    """What is asked for: which file, from which line, and what the questions must hold."""

    is_held_out_file: bool = False
    start: int = 0
    text: str = ""
    subject: str = ""
    difficulty: str = ""

    @property
    def is_search(self) -> bool:
        return bool(self.text or self.subject or self.difficulty)


@dataclass(frozen=True)
class QuestionRow:
    """One question as it is shown; `line` counts from 0."""

    line: int
    id: str
    question: str
    answer: str
    subject: str
    difficulty: str
    is_held_out: bool


@dataclass
class QuestionPage:
    """Rows, and the line at which the next page begins (None: no more). is_late: the search ran out of time."""

    rows: list[QuestionRow] = field(default_factory=list)
    next_start: int | None = None
    is_late: bool = False


def read_page(benchmark: Benchmark, query: QuestionSearch) -> QuestionPage:
    """Error: OSError, ValueError, KeyError where the files are gone or are no longer what they were."""
    page = QuestionPage()
    path = Path(benchmark.eval_path if query.is_held_out_file else benchmark.train_path)
    limit = benchmark.facts.get("held_out_limit")
    until = time.monotonic() + SEARCH_S
    text = query.text.casefold()
    for line, record in _records(path, query.start):
        if len(page.rows) == PAGE_SIZE or page.is_late:
            page.next_start = line
            break
        row = _row(benchmark, line, record, query.is_held_out_file, limit)
        if not query.is_search or _matches(row, query, text, benchmark.facts):
            page.rows.append(row)
        page.is_late = query.is_search and time.monotonic() > until
    else:
        page.is_late = False
    return page


def read_row(benchmark: Benchmark, *, is_held_out_file: bool, line: int) -> QuestionRow | None:
    """One question, or None where the file has no such line. Errors as for a page."""
    path = Path(benchmark.eval_path if is_held_out_file else benchmark.train_path)
    record = next(_records(path, line), None)
    if record is None or (is_held_out_file and not benchmark.eval_path):
        return None
    return _row(benchmark, record[0], record[1], is_held_out_file, benchmark.facts.get("held_out_limit"))


def _records(path: Path, start: int) -> Iterator[tuple[int, dict[str, object]]]:
    """Lines from `start` on, with their numbers."""
    with open(path, encoding="utf-8-sig") as file:
        line = 0
        index = path.with_suffix(".index")
        if start >= LINES_PER_INDEX and index.is_file():
            offsets = array("Q")
            offsets.frombytes(index.read_bytes())
            if not offsets:
                return
            entry = min(start // LINES_PER_INDEX, len(offsets) - 1)
            file.seek(offsets[entry])
            line = entry * LINES_PER_INDEX
        for text in file:
            if not text.strip():
                continue
            if line >= start:
                yield line, json.loads(text, parse_int=str, parse_float=str)
            line += 1


def _row(
    benchmark: Benchmark, line: int, record: dict[str, object], in_held_out_file: bool, limit: float | None
) -> QuestionRow:
    question = str(record[benchmark.question_field])
    return QuestionRow(
        line=line,
        id=str(record.get("id") or ""),
        question=question,
        answer=str(record[benchmark.answer_field]),
        subject=str(record.get("subject") or ""),
        difficulty=str(record.get("difficulty") or ""),
        is_held_out=in_held_out_file or (limit is not None and split_position(question) <= limit),
    )


def _is_in(value: str, group: str, counted: Mapping[str, int]) -> bool:
    """Whether a subject or difficulty is the wanted one; "others" are also all that are not counted by name."""
    return value == group or (group == OTHER_SLICES and bool(value) and value not in counted)


def _matches(row: QuestionRow, query: QuestionSearch, text: str, facts: Mapping[str, Any]) -> bool:
    if query.subject and not _is_in(row.subject, query.subject, facts.get("subjects") or {}):
        return False
    if query.difficulty and not _is_in(row.difficulty, query.difficulty, facts.get("difficulties") or {}):
        return False
    return not text or any(text in part.casefold() for part in (row.question, row.answer, row.id))
