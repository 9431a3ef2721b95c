"""The questions of a registered benchmark, read from its files one page at a time.

A page begins at a line, which the index beside the file leads to. A search reads on from its line for at most
SEARCH_S, and reports where it stopped.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from hacrl_web.registry.models import Benchmark
from hacrl_web.web.page_query import PageQuery, Text, Whole
from workers.contract.spec.data import split_position

PAGE_SIZE = 50
LINES_PER_INDEX = 50  # as workers.questions.canonical writes it
OTHER_SLICES = "others"  # as workers.questions.canonical counts what has no place among the named ones
SEARCH_S = 1.0


LineNumber = Annotated[Whole, Field(le=100_000_000)]


class QuestionFilter(PageQuery):
    """Which file, from which line, and what the questions must contain."""

    file: Literal["train", "held_out"] = "train"
    q: Text = ""
    subject: Text = ""
    difficulty: Text = ""
    start: LineNumber = 0

    @property
    def is_search(self) -> bool:
        return bool(self.q or self.subject or self.difficulty)

    def of(self, benchmark: Benchmark) -> Self:
        """The same filter; the training file if the benchmark has no held-out file."""
        return self if benchmark.eval_path else self.model_copy(update={"file": "train"})


@dataclass(frozen=True)
class QuestionRow:
    """One question; `line` counts from 0."""

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


def read_page(benchmark: Benchmark, query: QuestionFilter) -> QuestionPage:
    """Error: OSError, ValueError, KeyError if the files are gone or have changed."""
    page = QuestionPage()
    until = time.monotonic() + SEARCH_S
    text = query.q.casefold()
    for line, record in _records(benchmark, query.file, query.start):
        if len(page.rows) == PAGE_SIZE or page.is_late:
            page.next_start = line
            break
        row = _row(benchmark, query.file, line, record)
        if not query.is_search or _matches(row, query, text, benchmark.facts):
            page.rows.append(row)
        page.is_late = query.is_search and time.monotonic() > until
    else:
        page.is_late = False
    return page


def read_row(benchmark: Benchmark, file: str, line: int) -> QuestionRow | None:
    """One question, or None if the file has no such line. Errors as for a page."""
    record = next(_records(benchmark, file, line), None)
    return _row(benchmark, file, *record) if record else None


def training_questions(benchmark: Benchmark) -> list[str]:
    """The texts of all questions that are trained on. Errors as for a page."""
    rows = (_row(benchmark, "train", *record) for record in _records(benchmark, "train", 0))
    return [row.question for row in rows if not row.is_held_out]


def _records(benchmark: Benchmark, file_key: str, start: int) -> Iterator[tuple[int, dict[str, object]]]:
    """Records of a file from line `start` on, with their line numbers."""
    path = Path(benchmark.eval_path if file_key == "held_out" else benchmark.train_path)
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


def _row(benchmark: Benchmark, file: str, line: int, record: dict[str, object]) -> QuestionRow:
    question = str(record[benchmark.question_field])
    limit = benchmark.facts.get("held_out_limit")
    return QuestionRow(
        line=line,
        id=str(record.get("id") or ""),
        question=question,
        answer=str(record[benchmark.answer_field]),
        subject=str(record.get("subject") or ""),
        difficulty=str(record.get("difficulty") or ""),
        is_held_out=file == "held_out" or (limit is not None and split_position(question) <= limit),
    )


def _is_in(value: str, group: str, counted: Mapping[str, int]) -> bool:
    """Whether a subject or difficulty is in the group; "others" includes all that are not counted by name."""
    return value == group or (group == OTHER_SLICES and bool(value) and value not in counted)


def _matches(row: QuestionRow, query: QuestionFilter, text: str, facts: Mapping[str, Any]) -> bool:
    if query.subject and not _is_in(row.subject, query.subject, facts.get("subjects") or {}):
        return False
    if query.difficulty and not _is_in(row.difficulty, query.difficulty, facts.get("difficulties") or {}):
        return False
    return not text or any(text in part.casefold() for part in (row.question, row.answer, row.id))
