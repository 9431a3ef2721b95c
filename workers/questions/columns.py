"""The mapping from a file's columns to questions: guessed from the columns' names, then applied to every row.

The second step of a benchmark's import, between a file's rows (`workers.questions.files`) and canonical questions
(`workers.questions.canonical`). Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from workers.questions.dataset import Question, derived_id, id_of, optional_text, text_of
from workers.questions.files import QuestionFileError, kind_name
from workers.questions.options import INCORRECT_COLUMNS, OPTION_COLUMNS, option_question
from workers.verifiers.instructions.reference import (
    ARGUMENT_COLUMN,
    ID_COLUMN,
    INSTRUCTION_COLUMNS,
    instructions_of_row,
)
from workers.verifiers.mathematics.extraction import final_answer
from workers.verifiers.python.reference import TEST_COLUMNS, code_question
from workers.verifiers.short_answers.countdown import countdown_question, unclear_task

Extraction = Literal["as_is", "hashes", "boxed", "tests", "options", "countdown", "instructions"]
MAX_SLICE_LENGTH = 200  # characters of a subject or a difficulty
MAX_BOX_LENGTH = 50  # characters; a longer cell with a box is a whole solution
# Column names of common data sets, the most certain first.
USUAL_NAMES = {
    "question": ("question", "problem", "prompt", "query", "input", "instruction", "text"),
    "answer": ("answer", "final_answer", "gold", "target", "expected_answer", "expected", "solution", "output"),
    "subject": ("subject", "type", "category", "topic", "subfield"),
    "difficulty": ("difficulty", "level"),
    "id": ("id", "unique_id", "question_id", "problem_id", "uuid", "task_id"),
}
# The column of the tests in HumanEval and MBPP, each with another column by which the data set is known.
_TEST_COLUMNS = {"test": "entry_point", "test_list": "code"}
# The answer in data sets with options: the most certain first.
_OPTION_ANSWERS = ("answerKey", "Correct Answer", "answer")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


@dataclass(frozen=True)
class QuestionMapping:
    """Names of the columns (empty: no such column), and how to extract the answer from its cell."""

    question: str = "question"
    answer: str = "answer"
    subject: str = ""
    difficulty: str = ""
    id: str = ""
    extraction: Extraction = "as_is"

    @property
    def columns(self) -> list[str]:
        beside = {"tests": TEST_COLUMNS, "options": OPTION_COLUMNS, "instructions": INSTRUCTION_COLUMNS}.get(
            self.extraction, ()
        )
        named = (self.question, self.answer, self.subject, self.difficulty, self.id, *beside)
        return list(dict.fromkeys(name for name in named if name))

    def question_of(self, record: Mapping[str, Any]) -> Question:
        """The question of a row. Error: QuestionFileError."""
        row = dict(record)
        if isinstance(row.get(self.question), list) and self.extraction != "countdown":
            row[self.question] = _question_of_messages(row[self.question], self.question)
        try:
            if self.extraction in _READERS:
                row[self.question], row[self.answer] = _READERS[self.extraction](row, self.question, self.answer)
            elif self.extraction == "instructions":
                row[self.answer] = instructions_of_row(row)
        except ValueError as error:
            raise QuestionFileError(str(error)) from None
        if isinstance(answers := row.get(self.answer), list) and answers:  # some data sets have lists of one answer
            if len(answers) > 1:
                raise QuestionFileError(f"{self.answer!r} is a list of several answers: keep one")
            row[self.answer] = answers[0]
        question = text_of(row, self.question)
        return Question(
            id=(id_of(row, self.id) if self.id else "") or derived_id(question),
            question=question,
            answer=extracted(text_of(row, self.answer), self.extraction, self.answer),
            subject=_slice(row, self.subject),
            difficulty=_slice(row, self.difficulty),
        )


def _question_of_messages(messages: list[Any], column: str) -> str:
    """The text of a prompt in TRL's form: the user's message, after the system's. Error: QuestionFileError."""
    parts = [
        (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None, None)
        for message in messages
    ]
    texts = [text for _, text in parts if isinstance(text, str)]
    if [role for role, _ in parts] not in (["user"], ["system", "user"]) or len(texts) < len(parts):
        text = "is a list, but not of one message of a user, which one of the system may precede"
        raise QuestionFileError(f"{column!r} {text}")
    return "\n\n".join(text.strip() for text in texts if text.strip())


def _countdown(row: Mapping[str, Any], numbers: str, target: str) -> tuple[str, str]:
    """Question and reference answer of a list of numbers and a target. Error: QuestionFileError."""
    cells = row.get(numbers)
    cells = re.findall(r"\d+", cells) if isinstance(cells, str) else cells
    if not isinstance(cells, list) or not all(str(one).isdecimal() for one in cells):
        raise QuestionFileError(f"{numbers!r} must be a list of whole numbers")
    question, gold = countdown_question([str(one) for one in cells], str(row.get(target)))
    if doubt := unclear_task(gold):
        raise QuestionFileError(f"{doubt}: here it is {gold[:60]!r}")
    return question, gold


# (row, names of question and answer) -> their texts; ValueError if there are none.
_READERS: dict[Extraction, Callable[[dict[str, Any], str, str], tuple[str, str]]] = {
    "tests": code_question,
    "options": option_question,
    "countdown": _countdown,
}


def _slice(row: Mapping[str, Any], column: str) -> str:
    if not column:
        return ""
    value = row.get(column)
    if not isinstance(value, str | None):
        raise QuestionFileError(f"{column!r} must be text or a number, not {kind_name(value)}")
    text = optional_text(dict(row), column) if value and value.strip() else ""
    if len(text) > MAX_SLICE_LENGTH:
        raise QuestionFileError(f"{column!r} has {len(text)} characters, {MAX_SLICE_LENGTH} at most")
    return " ".join(text.split())


def extracted(text: str, how: Extraction, column: str = "answer") -> str:
    r"""The answer in a cell: all of it, the text after the last `####`, or the last `\boxed{}`.

    Error: QuestionFileError.
    """
    if how not in ("hashes", "boxed"):
        return text
    if how == "hashes":
        before, _, answer = text.rpartition("####")
        answer = answer.strip()
        if not before and "####" not in text:
            raise QuestionFileError(f"{column!r} has no ####")
        answer = answer.replace(",", "") if _THOUSANDS.fullmatch(answer) else answer
    else:
        if "\\boxed" not in text and "\\fbox" not in text:
            raise QuestionFileError(f"{column!r} has no \\boxed{{}}")
        answer = (final_answer(text) or "").strip()
    if not answer:
        where = "nothing after ####" if how == "hashes" else "a box that is empty or not closed"
        raise QuestionFileError(f"{column!r} has {where}")
    return answer


def guess(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> QuestionMapping:
    """The most likely mapping, by the columns' names and a few rows; empty for a column that has no match."""
    by_name = {name.strip().lower().replace(" ", "_"): name for name in reversed(columns)}
    by_part = {part: next((by_name[n] for n in names if n in by_name), "") for part, names in USUAL_NAMES.items()}
    cells = [value for record in records if isinstance(value := record.get(by_part["answer"]), str)]
    extraction: Extraction = "as_is"
    if ID_COLUMN in columns and ARGUMENT_COLUMN in columns:
        return QuestionMapping(**by_part | {"answer": ID_COLUMN}, extraction="instructions")
    if "nums" in columns and "target" in columns:
        return QuestionMapping(**by_part | {"question": "nums", "answer": "target"}, extraction="countdown")
    if any(name in columns for name in OPTION_COLUMNS):
        correct = next((name for name in _OPTION_ANSWERS if name in columns), by_part["answer"])
        own = {"answer": correct, "question": "Question" if INCORRECT_COLUMNS[0] in columns else by_part["question"]}
        return QuestionMapping(**by_part | own, extraction="options")
    for column, beside in _TEST_COLUMNS.items():
        if column in columns and beside in columns:
            return QuestionMapping(**by_part | {"answer": column}, extraction="tests")
    if cells and all("####" in cell for cell in cells):
        extraction = "hashes"
    elif cells and all("\\boxed" in cell and len(cell) > MAX_BOX_LENGTH for cell in cells):
        extraction = "boxed"
    return QuestionMapping(**by_part, extraction=extraction)
