"""A run's questions, read from a file and split into a training and a held-out set.

The first step of a run, before any model is loaded. Every line is checked; an error names the line and the problem. A
held-out question is never trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workers.contract.spec.data import DataSpec, held_out_limit, question_key, split_position
from workers.questions.files import MAX_QUESTIONS, BenchmarkError, QuestionFileError, Source, kind_name

MAX_ID_LENGTH = 200  # characters, as the database stores it


@dataclass(frozen=True)
class Question:
    """One question. `subject` and `difficulty` name the slices it is reported under, or are empty."""

    id: str
    question: str
    answer: str
    subject: str = ""
    difficulty: str = ""
    template: str = "{question}"
    system: str = ""  # the benchmark's system message
    benchmark: str = ""  # the training set, in a run with several

    @property
    def prompt(self) -> str:
        """The question in its benchmark's template, before any agent's own template."""
        return self.template.replace("{question}", self.question)


@dataclass(frozen=True)
class Split:
    """The two sets; num_repeated: repeated lines left out; num_overlapping: training questions that are held out."""

    train: list[Question]
    held_out: list[Question]
    num_repeated: int
    num_overlapping: int


def split_questions(data: DataSpec) -> Split:
    """Training and held-out questions of a run. Error: BenchmarkError."""
    fields = (data.question_field, data.answer_field, data.prompt_template, data.system_prompt)
    questions, num_repeated = read_questions(Path(data.train_path), *fields)
    if data.eval_path is None:
        # Split by hash, so that adding or moving lines changes no other question's side.
        positions = [split_position(question.question) for question in questions]
        limit = held_out_limit(positions, data.held_out_fraction)
        train = [question for question, position in zip(questions, positions, strict=True) if position > limit]
        held_out = [question for question, position in zip(questions, positions, strict=True) if position <= limit]
        return Split(train, held_out, num_repeated, 0)
    held_out, repeated_held_out = read_questions(Path(data.eval_path), *fields)
    held_out_keys = {question_key(question.question) for question in held_out}
    train = [question for question in questions if question_key(question.question) not in held_out_keys]
    if not train:
        raise BenchmarkError(f"{data.train_path}: every question is also in {data.eval_path}: nothing left to train on")
    return Split(train, held_out, num_repeated + repeated_held_out, len(questions) - len(train))


def evaluated_questions(data: DataSpec) -> list[Question]:
    """The questions of a benchmark that is only evaluated: its held-out ones, or all if it has none.

    Error: BenchmarkError.
    """
    if data.eval_path:
        data = data.model_copy(update={"train_path": data.eval_path, "eval_path": None, "held_out_fraction": 0.0})
    split = split_questions(data)
    return split.held_out or split.train


def split_sets(*sets: DataSpec, evaluated: Sequence[DataSpec] = ()) -> list[Split]:
    """Training and held-out questions of a run's training sets, its own benchmark first.

    With several, a question that any of them holds out, or on which one of `evaluated` is evaluated, is trained on in
    none, a question of several sets is the first one's, and ids are each used once. Error: BenchmarkError.
    """
    splits = [split_questions(one) for one in sets]
    if len(sets) == 1:
        return splits
    evaluation_sets = [*(split.held_out for split in splits), *(evaluated_questions(one) for one in evaluated)]
    held_out = {question_key(question.question) for questions in evaluation_sets for question in questions}
    keys, ids = set(held_out), set[str]()
    joint = []
    for one, split in zip(sets, splits, strict=True):
        train = []
        num_overlapping = split.num_overlapping
        for question in split.train:
            key = question_key(question.question)
            num_overlapping += key in held_out
            if key not in keys:
                keys.add(key)
                train.append(replace(question, id=_free_id(question, one.benchmark, ids), benchmark=one.benchmark))
        if not train:
            raise BenchmarkError(
                f"{one.benchmark}: every training question is held out, evaluated or in an earlier training set: "
                "remove this one, or that one"
            )
        num_repeated = split.num_repeated + len(split.train) - len(train) - (num_overlapping - split.num_overlapping)
        joint.append(Split(train, split.held_out, num_repeated, num_overlapping))
    return joint


def _free_id(question: Question, benchmark: str, ids: set[str]) -> str:
    """The question's id, and with its set's name if another set has that id; it is added to `ids`."""
    long_id = f"{benchmark}/{question.id}"
    candidates = (question.id, long_id[-MAX_ID_LENGTH:], derived_id(question.question))
    free_id = next(one for one in candidates if one not in ids)
    ids.add(free_id)
    return free_id


def read_questions(
    path: Path,
    question_field: str = "question",
    answer_field: str = "answer",
    template: str = "{question}",
    system: str = "",
) -> tuple[list[Question], int]:
    """All questions of a file in its order, and how many repeated lines were left out. Error: BenchmarkError."""
    questions: list[Question] = []
    earlier = EarlierQuestions()
    num_repeated = 0
    source = Source(path)
    for number, record in source.rows():
        try:
            text = text_of(record, question_field)
            question = Question(
                id=id_of(record, "id") or derived_id(text),
                question=text,
                answer=text_of(record, answer_field),
                subject=optional_text(record, "subject"),
                difficulty=optional_text(record, "difficulty"),
                template=template,
                system=system,
            )
            if earlier.is_repeated(number, question, hash64(question_key(text))):
                num_repeated += 1
                continue
        except QuestionFileError as error:
            raise BenchmarkError(f"{path.name}, {source.row_word} {number}: {error}") from None
        questions.append(question)
        if len(questions) > MAX_QUESTIONS:
            raise BenchmarkError(f"{path.name}: more than {MAX_QUESTIONS:,} questions: remove some")
    if not questions:
        raise BenchmarkError(f"{path.name}: no questions in it: write one JSON object a line")
    return questions, num_repeated


def hash64(text: str) -> int:
    """64 bits of a text's hash."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class EarlierQuestions:
    """The questions and ids of the lines so far, as digests: about 100 bytes a line, however long the texts are."""

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}  # key -> line, 32 bits of the answer, 32 of the plain question
        self._ids: dict[int, int] = {}

    def is_repeated(self, line: int, question: Question, key: int) -> bool:
        """Whether an earlier line has this key and answer.

        Error: QuestionFileError if an earlier line has the question with another answer, or the id.
        """
        answer, plain = hash64(question.answer) >> 32, hash64(question_key(question.question)) >> 32
        first = self.keys.get(key)
        if first is None:
            self.keys[key] = line << 64 | answer << 32 | plain
        elif (first >> 32) & 0xFFFFFFFF == answer:
            return True
        elif first & 0xFFFFFFFF == plain:
            raise QuestionFileError(f"repeats the question of line {first >> 64} with another answer: keep one")
        id_key = hash64(question.id)
        if id_key in self._ids:
            raise QuestionFileError(f"id {question.id[:80]!r} is already used by line {self._ids[id_key]}: change one")
        self._ids[id_key] = line
        return False


def id_of(record: dict[str, Any], field: str) -> str:
    """The record's id, empty if it has none. Error: QuestionFileError."""
    own_id = optional_text(record, field)
    if len(own_id) > MAX_ID_LENGTH:
        raise QuestionFileError(f"{field!r} has {len(own_id)} characters, {MAX_ID_LENGTH} at most")
    return own_id


def derived_id(question: str) -> str:
    """The id of a question without one, derived from its text."""
    return f"q-{hashlib.sha256(question_key(question).encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def optional_text(record: dict[str, Any], field: str) -> str:
    """A field that a record may omit or leave empty. Error: QuestionFileError."""
    return text_of(record, field) if record.get(field) not in (None, "") else ""


def text_of(record: dict[str, Any], field: str) -> str:
    """A field as text (a `Source` keeps numbers as text). Error: QuestionFileError."""
    if field not in record:
        keys = ", ".join(sorted(record))[:200]
        raise QuestionFileError(f"no key {field!r} (keys here: {keys or 'none'})")
    value = record[field]
    if not isinstance(value, str):
        raise QuestionFileError(f"{field!r} must be text or a number, not {kind_name(value)}")
    if not value.strip():
        raise QuestionFileError(f"{field!r} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, as "\ud800" in JSON
        raise QuestionFileError(f"{field!r} contains half a character (a lone surrogate)") from None
    return value
