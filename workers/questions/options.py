"""Multiple choice in the columns of usual data sets: a question with lettered options, and the letter of the answer.

Four forms: options as a list and the answer as a letter or a place from 0 (MMLU, MMLU-Pro); options with labels of
their own (ARC, CommonsenseQA); the correct answer and three incorrect ones in columns (GPQA); options within the
question's text and the answer as a letter (BBH). Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workers.questions.files import QuestionFileError

LETTERS = "ABCDEFGHIJ"  # those that the verifier choice reads
LIST_COLUMNS = ("choices", "options")
INCORRECT_COLUMNS = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
OPTION_COLUMNS = (*LIST_COLUMNS, *INCORRECT_COLUMNS)
_LETTER = re.compile(r"\(?([A-J])\)?\.?")


def option_question(row: Mapping[str, Any], question: str, answer: str) -> tuple[str, str]:
    """The text of a row's question with its options, one a line, and the letter. Error: QuestionFileError."""
    text, given_answer = _text(row, question), _text(row, answer)
    if row.get(INCORRECT_COLUMNS[0]):
        options = _ordered(text, [given_answer, *(_text(row, name) for name in INCORRECT_COLUMNS if row.get(name))])
        return _lettered(text, options), LETTERS[options.index(given_answer)]
    column = next((name for name in LIST_COLUMNS if row.get(name)), "")
    if not column:
        if match := _LETTER.fullmatch(given_answer):
            return text, match[1]
        raise QuestionFileError(f"no options: columns {', '.join(OPTION_COLUMNS)}, or a letter in {answer!r}")
    options, labels = _options(row[column], column)
    return _lettered(text, options), LETTERS[_place(given_answer, options, labels, answer)]


def _options(value: Any, column: str) -> tuple[list[str], list[str]]:
    """The texts and labels of a cell; without labels, letters. Error: QuestionFileError."""
    if isinstance(value, str):  # CSV has them as text
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise QuestionFileError(f"{column!r} must be a list of options") from None
    labels: Any = None
    if isinstance(value, Mapping):
        value, labels = value.get("text"), value.get("label")
    if not isinstance(value, list) or not all(isinstance(one, str | int | float) for one in value):
        raise QuestionFileError(f"{column!r} must be a list of options")
    options = [str(one).strip() for one in value]
    if not 2 <= len(options) <= len(LETTERS):
        raise QuestionFileError(f"{column!r} has {len(options)} options, 2 to {len(LETTERS)} can be read")
    if not all(options):
        raise QuestionFileError(f"{column!r} has an empty option")
    labels = list(LETTERS[: len(options)]) if labels is None else labels
    if not isinstance(labels, list) or len(labels) != len(options):
        raise QuestionFileError(f"{column!r} has not one label for each option")
    return options, [str(one) for one in labels]


def _place(answer: str, options: Sequence[str], labels: Sequence[str], column: str) -> int:
    """Of the answer: by its label, else by its place from 0, else by its text. Error: QuestionFileError."""
    if answer in labels:
        return labels.index(answer)
    if answer.isascii() and answer.isdigit() and len(answer) < 3 and int(answer) < len(options):
        return int(answer)
    if options.count(answer) == 1:
        return options.index(answer)
    raise QuestionFileError(f"{column!r} names no option: {answer[:40]!r}")


def _ordered(question: str, options: Sequence[str]) -> list[str]:
    """By a hash of question and option: the same on every machine, and the correct one in no fixed place."""
    if len(set(options)) < len(options):
        raise QuestionFileError("two of its options are equal")
    return sorted(options, key=lambda option: hashlib.sha256(f"{question}\n{option}".encode()).hexdigest())


def _lettered(question: str, options: Sequence[str]) -> str:
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    return f"{question}\n\n{lines}"


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        raise QuestionFileError(f"{column!r} must be text" if column in row else f"no key {column!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise QuestionFileError(f"{column!r} contains half a character (a lone surrogate)") from None
    return value.strip()
