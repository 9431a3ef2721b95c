"""Multiple choice in the columns of usual data sets: a question with lettered options, and the letter of the answer.

Five forms: options as a list and the answer as a letter, a place from 0 or its text (MMLU, MMLU-Pro); options with
labels of their own (ARC, CommonsenseQA); a column for each option, such as A to D or option1 and option2 (MMLU's CSV,
MedMCQA); the correct answer and three incorrect ones in columns (GPQA); options within the question's text and the
answer as a letter (BBH). Standard library only.
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
_OPTION_COLUMN = re.compile(r"([A-J])|(?i:(?:option|choice|op)[ _]?([a-j])|(?:option|choice)[ _]?([1-9]))")
_OWN_LABEL = re.compile(r"\(?([A-J])[).:]\s*")
_LETTER = re.compile(r"\(?([A-J])\)?\.?")


def option_question(row: Mapping[str, Any], question: str, answer: str) -> tuple[str, str]:
    """The text of a row's question with its options, one a line, and the letter. Error: QuestionFileError."""
    text, given_answer = _text(row, question), _text(row, answer)
    if row.get(INCORRECT_COLUMNS[0]):
        options = _ordered(text, [given_answer, *(_text(row, name) for name in INCORRECT_COLUMNS if row.get(name))])
        return _lettered(text, options), LETTERS[options.index(given_answer)]
    column = next((name for name in LIST_COLUMNS if row.get(name)), "")
    if not column and (columns := _columns_of_options(row)):
        options = [_text(row, name) for name in columns.values()]
        return _lettered(text, options), LETTERS[_place(given_answer, options, list(columns), answer)]
    if not column:
        if match := _LETTER.fullmatch(given_answer):
            return text, match[1]
        raise QuestionFileError(f"no options: columns {', '.join(OPTION_COLUMNS)}, or a letter in {answer!r}")
    options, labels = _options(row[column], column)
    return _lettered(text, options), LETTERS[_place(given_answer, options, labels, answer)]


def has_options(row: Mapping[str, Any]) -> bool:
    """Whether a row has columns of options."""
    return any(row.get(name) for name in OPTION_COLUMNS) or bool(_columns_of_options(row))


def is_option_column(name: str) -> bool:
    """Whether a column holds options."""
    return name.split(".")[0] in OPTION_COLUMNS or bool(_OPTION_COLUMN.fullmatch(name))


def check_places(rows: Sequence[Mapping[str, Any]], answer: str) -> None:
    """Places are counted from 0. Error: QuestionFileError, if these rows count them from 1."""
    counts = [
        (row.get(answer), len(row.get("choices") or row.get("options") or _columns_of_options(row))) for row in rows
    ]
    numbers = [
        (int(text), count) for text, count in counts if isinstance(text, str) and re.fullmatch("[0-9]{1,2}", text)
    ]
    if any(number == count for number, count in numbers) and not any(number == 0 for number, _ in numbers):
        text = "seems to count options from 1; places are read from 0: write letters, or count from 0"
        raise QuestionFileError(f"{answer!r} {text}")


def _columns_of_options(row: Mapping[str, Any]) -> dict[str, str]:
    """By label (A, B ... or 1, 2 ...) the columns of a row that each hold an option; empty without two."""
    matches = {name: match for name in row if row[name] and (match := _OPTION_COLUMN.fullmatch(name))}
    by_label = {(match[1] or match[2] or match[3]).upper(): name for name, match in matches.items()}
    for labels in (LETTERS, "123456789"):
        columns = {label: by_label[label] for label in labels if label in by_label}
        if len(columns) > 1 and list(columns) == list(labels[: len(columns)]):
            return columns
    return {}


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
    own_labels = [match[1] if (match := _OWN_LABEL.match(option)) else "" for option in options]
    if own_labels == list(LETTERS[: len(options)]):  # "A) 21"
        options = [_OWN_LABEL.sub("", option, count=1) for option in options]
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
