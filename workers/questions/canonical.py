"""Canonical questions: one JSON object a line, `{"id", "question", "answer", "subject", "difficulty"}`, each once.

Third station of a benchmark. Of what has been read only short digests are kept, so that the memory it takes does not
grow with the texts. Beside each file stands an index, the place of every 50th line, by which pages are read. Standard
library only.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.spec.data import question_key, split_position
from workers.questions.columns import QuestionMapping
from workers.questions.dataset import Question
from workers.questions.files import MAX_LINE_BYTES, MAX_QUESTIONS, BenchmarkError, QuestionFileError, Source

LINES_PER_INDEX = 50
MAX_SLICES = 200  # different subjects, or difficulties, that are counted by name
OTHER_SLICES = "others"


@dataclass
class Written:
    """What one canonical file holds; `keys`: digests of its questions, `places`: where the held-out order has them."""

    num_questions: int = 0
    num_repeated: int = 0
    num_overlapping: int = 0
    subjects: Counter[str] = field(default_factory=Counter)
    difficulties: Counter[str] = field(default_factory=Counter)
    keys: dict[int, int] = field(default_factory=dict)
    places: array[float] = field(default_factory=lambda: array("d"))


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def strict_key(question: str) -> int:
    """What two questions share that differ only in spaces, letter case or typography: 64 bits."""
    return _digest("".join(unicodedata.normalize("NFKC", question).casefold().split()))


class _Seen:
    """Which questions and ids stood in which line, in about 100 bytes each whatever their length."""

    def __init__(self, keys: dict[int, int]) -> None:
        self._keys = keys  # strict key -> line, 32 bits of the answer, 32 of the plain question
        self._ids: dict[int, int] = {}

    def is_repeated(self, line: int, question: Question, key: int) -> bool:
        """Whether it stood there before with the same answer. Error: Refused, with another answer or under its id."""
        answer, plain = _digest(question.answer) >> 32, _digest(question_key(question.question)) >> 32
        packed = line << 64 | answer << 32 | plain
        first = self._keys.get(key)
        if first is not None:
            if (first >> 32) & 0xFFFFFFFF == answer:
                return True
            if first & 0xFFFFFFFF == plain:
                raise QuestionFileError(f"the question of line {first >> 64} again, with another answer")
        else:
            self._keys[key] = packed
        id_key = _digest(question.id)
        if id_key in self._ids:
            raise QuestionFileError(f"id {question.id[:80]!r} is already used by line {self._ids[id_key]}")
        self._ids[id_key] = line
        return False


def write_canonical(
    sources: Iterable[Source],
    mapping: QuestionMapping,
    path: Path,
    digest: Any,
    *,
    excluded: Container[int] = frozenset(),
    tell: Callable[[Source, int], None] = lambda source, number: None,
) -> Written:
    """Write the questions of `sources` in their order, without repeated ones and those whose key is in `excluded`.

    digest: a hash that takes in every byte written. Errors: BenchmarkError.
    """
    written = Written()
    earlier = _Seen(written.keys)
    index = array("Q")
    offset = 0
    names = []
    with open(path, "xb") as out:
        for source in sources:
            names.append(source.name)
            for number, record in source.rows(mapping.columns):
                tell(source, number)
                try:
                    line = _line(mapping.question_of(record), number, earlier, written, excluded)
                except QuestionFileError as error:
                    raise BenchmarkError(f"{source.name}, {source.row_word} {number}: {error}") from None
                if not line:
                    continue
                if written.num_questions % LINES_PER_INDEX == 1:
                    index.append(offset)
                if written.num_questions > MAX_QUESTIONS:
                    raise BenchmarkError(f"{source.name}: more than {MAX_QUESTIONS} questions")
                out.write(line)
                digest.update(line)
                offset += len(line)
    if not written.num_questions and not written.num_overlapping:
        raise BenchmarkError(f"{names[0]}: no questions in it")
    index_of(path).write_bytes(index.tobytes())
    return written


def _line(question: Question, number: int, earlier: _Seen, written: Written, excluded: Container[int]) -> bytes:
    """The canonical line, counted; empty where it is left out. Error: Refused."""
    key = strict_key(question.question)
    if earlier.is_repeated(number, question, key):
        written.num_repeated += 1
        return b""
    if key in excluded:
        written.num_overlapping += 1
        return b""
    record = {name: getattr(question, name) for name in ("id", "question", "answer", "subject", "difficulty")}
    line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise QuestionFileError(f"longer than {MAX_LINE_BYTES} bytes")
    written.num_questions += 1
    written.places.append(split_position(question.question))
    for counts, name in ((written.subjects, question.subject), (written.difficulties, question.difficulty)):
        if name:
            counts[name if name in counts or len(counts) < MAX_SLICES else OTHER_SLICES] += 1
    return line


def index_of(path: Path) -> Path:
    """The index that stands beside a canonical file."""
    return path.with_suffix(".index")


def read_canonical(path: Path, question_field: str = "question") -> Iterator[tuple[str, str]]:
    """Id and question of every line, also of a file that was registered before there were canonical ones."""
    with open(path, encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                record = json.loads(line)
                yield str(record.get("id") or ""), str(record[question_field])
