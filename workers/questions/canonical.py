"""Canonical question files: one JSON object a line, `{"id", "question", "answer", "subject", "difficulty"}`.

The third step of a benchmark's import. Only short digests of the lines stay in memory, so that it does not grow with
the texts. An index beside each file has the position of every 50th line, where pages begin. Standard library only.
"""

from __future__ import annotations

import json
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.spec.data import split_position
from workers.questions.columns import QuestionMapping
from workers.questions.dataset import EarlierQuestions, Question, hash64
from workers.questions.files import MAX_LINE_BYTES, MAX_QUESTIONS, BenchmarkError, QuestionFileError, Source

LINES_PER_INDEX = 50
MAX_ODD = 20  # rows that are left out and shown
MAX_SLICES = 200  # subjects, or difficulties, that are counted by name
OTHER_SLICES = "others"


@dataclass
class CanonicalSet:
    """What one canonical file holds. keys: of EarlierQuestions; positions: split positions of the questions."""

    num_questions: int = 0
    num_repeated: int = 0
    num_overlapping: int = 0
    num_odd: int = 0
    odd: list[dict[str, str]] = field(default_factory=list)  # the first rows that are left out: place, reason
    subjects: Counter[str] = field(default_factory=Counter)
    difficulties: Counter[str] = field(default_factory=Counter)
    keys: dict[int, int] = field(default_factory=dict)
    positions: array[float] = field(default_factory=lambda: array("d"))


def strict_key(question: str) -> int:
    """64 bits that are the same for questions that differ only in spaces, letter case or typography."""
    return hash64("".join(unicodedata.normalize("NFKC", question).casefold().split()))


def write_canonical(
    sources: Sequence[Source],
    mapping: QuestionMapping,
    path: Path,
    file_hash: Any,
    *,
    excluded: Container[int] = frozenset(),
    report: Callable[[Source, int], None] = lambda source, number: None,
) -> CanonicalSet:
    """Write the questions of `sources` in their order, without repeated ones and those whose key is in `excluded`.

    Rows that cannot be used are left out and counted, unless most are so: then the first is the error.
    file_hash: of hashlib, updated with every byte written. Error: BenchmarkError.
    """
    earlier = EarlierQuestions()
    result = CanonicalSet(keys=earlier.keys)
    index = array("Q")
    offset = 0
    # Of Parquet: options may be in columns of any of several names.
    columns = () if mapping.extraction == "options" else mapping.columns
    with open(path, "xb") as out:
        for source in sources:

            def leave_out(number: int, error: QuestionFileError, source: Source = source) -> None:
                result.num_odd += 1
                if len(result.odd) < MAX_ODD:
                    place = f"{source.name}, {source.row_word} {number}"
                    result.odd.append({"place": place, "reason": str(error)})

            for number, record in source.rows(columns, leave_out):
                report(source, number)
                try:
                    line = _line(mapping.question_of(record), number, earlier, result, excluded)
                except QuestionFileError as error:
                    leave_out(number, error)
                    continue
                if not line:
                    continue
                if result.num_questions % LINES_PER_INDEX == 1:
                    index.append(offset)
                if result.num_questions > MAX_QUESTIONS:
                    raise BenchmarkError(f"{source.name}: more than {MAX_QUESTIONS:,} questions: remove some")
                out.write(line)
                file_hash.update(line)
                offset += len(line)
    if result.num_odd > result.num_questions + result.num_repeated + result.num_overlapping:
        more = f" (and {result.num_odd - 1:,} more such rows)" if result.num_odd > 1 else ""
        raise BenchmarkError(f"{result.odd[0]['place']}: {result.odd[0]['reason']}{more}")
    if not result.num_questions and not result.num_overlapping:
        raise BenchmarkError(f"{sources[0].name}: no questions in it")
    path.with_suffix(".index").write_bytes(index.tobytes())
    return result


def _line(
    question: Question, number: int, earlier: EarlierQuestions, result: CanonicalSet, excluded: Container[int]
) -> bytes:
    """The canonical line, counted; empty if it is left out. Error: QuestionFileError."""
    key = strict_key(question.question)
    if earlier.is_repeated(number, question, key):
        result.num_repeated += 1
        return b""
    if key in excluded:
        result.num_overlapping += 1
        return b""
    record = {name: getattr(question, name) for name in ("id", "question", "answer", "subject", "difficulty")}
    line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise QuestionFileError(f"longer than {MAX_LINE_BYTES} bytes")
    result.num_questions += 1
    result.positions.append(split_position(question.question))
    for counts, name in ((result.subjects, question.subject), (result.difficulties, question.difficulty)):
        if name:
            counts[name if name in counts or len(counts) < MAX_SLICES else OTHER_SLICES] += 1
    return line


def canonical_texts(path: Path, question_field: str = "question") -> Iterator[str]:
    """The question of every line, also of a file that was registered before files were canonical."""
    with open(path, encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                yield str(json.loads(line)[question_field])
