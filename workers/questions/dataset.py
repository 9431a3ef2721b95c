"""Questions with reference answers, read from JSONL and split into training and held-out sets.

First station of a run, before any model is loaded: every line is checked, and an error names the line and what is
wrong with it. A question that stands in the held-out set is never trained on. Standard library only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.spec.data import DataSpec, held_out_limit, question_key, split_position
from workers.questions.files import (
    MAX_QUESTIONS,
    BenchmarkError,
    QuestionFileError,
    decode_text,
    kind_name,
    numbered_lines,
)

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

    @property
    def prompt(self) -> str:
        """What is asked: the question in its benchmark's template, before any agent's own."""
        return self.template.replace("{question}", self.question)


@dataclass(frozen=True)
class Split:
    """The two sets, and how many lines were left out: repeated lines, and training questions that are held out."""

    train: list[Question]
    held_out: list[Question]
    num_repeated: int
    num_overlapping: int


def split_questions(data: DataSpec) -> Split:
    """Training and held-out questions of a run, with the counts of what was left out. Errors: BenchmarkError."""
    fields = (data.question_field, data.answer_field, data.prompt_template)
    questions, num_repeated = read_questions(Path(data.train_path), *fields)
    if data.eval_path is None:
        train, held_out = _hold_out(questions, data.held_out_fraction)
        return Split(train, held_out, num_repeated, 0)
    held_out, repeated_held_out = read_questions(Path(data.eval_path), *fields)
    held_out_keys = {question_key(question.question) for question in held_out}
    train = [question for question in questions if question_key(question.question) not in held_out_keys]
    if not train:
        raise BenchmarkError(f"{data.train_path}: every question is also in {data.eval_path}: nothing left to train on")
    return Split(train, held_out, num_repeated + repeated_held_out, len(questions) - len(train))


def read_questions(
    path: Path, question_field: str = "question", answer_field: str = "answer", template: str = "{question}"
) -> tuple[list[Question], int]:
    """All questions of a file in its order, and how many repeated lines were left out. Errors: BenchmarkError."""
    questions: list[Question] = []
    line_of_id: dict[str, int] = {}
    first_with: dict[str, tuple[int, str]] = {}
    num_repeated = 0
    for number, line in numbered_lines(path):
        try:
            question = question_of(decode_text(line), question_field, answer_field, template)
            key = question_key(question.question)
            if key in first_with:
                first_line, answer = first_with[key]
                if answer != question.answer:
                    raise QuestionFileError(f"the question of line {first_line} again, with another answer")
                num_repeated += 1
                continue
            if question.id in line_of_id:
                raise QuestionFileError(f"id {question.id[:80]!r} is already used by line {line_of_id[question.id]}")
        except QuestionFileError as error:
            raise BenchmarkError(f"{path.name}, line {number}: {error}") from None
        first_with[key] = (number, question.answer)
        line_of_id[question.id] = number
        questions.append(question)
        if len(questions) > MAX_QUESTIONS:
            raise BenchmarkError(f"{path.name}: more than {MAX_QUESTIONS} questions")
    if not questions:
        raise BenchmarkError(f"{path.name}: no questions in it (one JSON object a line is needed)")
    return questions, num_repeated


def question_of(record: dict[str, Any], question_field: str, answer_field: str, template: str) -> Question:
    """The question of a line. Error: Refused."""
    question = text_of(record, question_field)
    return Question(
        id=id_of(record, "id") or derived_id(question),
        question=question,
        answer=text_of(record, answer_field),
        subject=optional_text(record, "subject"),
        difficulty=optional_text(record, "difficulty"),
        template=template,
    )


def id_of(record: dict[str, Any], field: str) -> str:
    """The given id, empty where there is none. Error: Refused."""
    own_id = optional_text(record, field)
    if len(own_id) > MAX_ID_LENGTH:
        raise QuestionFileError(f"{field!r} has {len(own_id)} characters, {MAX_ID_LENGTH} at most")
    return own_id


def derived_id(question: str) -> str:
    """The id of a question that was given none: of its text alone."""
    return f"q-{hashlib.sha256(question_key(question).encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def optional_text(record: dict[str, Any], field: str) -> str:
    """A field that a line may lack or leave empty. Error: Refused."""
    return text_of(record, field) if record.get(field) not in (None, "") else ""


def text_of(record: dict[str, Any], field: str) -> str:
    """A field as text (`decode` has left numbers as text). Error: Refused."""
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
        raise QuestionFileError(f"{field!r} holds half a character (a lone surrogate)") from None
    return value


def _hold_out(questions: list[Question], fraction: float) -> tuple[list[Question], list[Question]]:
    """Split by hash, so that adding or moving lines changes no other question's side."""
    places = [split_position(question.question) for question in questions]
    limit = held_out_limit(places, fraction)
    train = [question for question, place in zip(questions, places, strict=True) if place > limit]
    held_out = [question for question, place in zip(questions, places, strict=True) if place <= limit]
    return train, held_out
