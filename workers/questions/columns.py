"""The mapping from a file's columns to questions: guessed from the columns' names, then applied to every row.

The second step of a benchmark's import, between a file's rows (`workers.questions.files`) and canonical questions
(`workers.questions.canonical`). Standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from workers.contract.verifier_kinds import FORMAT_KINDS
from workers.questions.dataset import Question, derived_id, id_of, optional_text, text_of
from workers.questions.files import QuestionFileError, is_messages, kind_name, role_of, text_of_message
from workers.questions.options import INCORRECT_COLUMNS, OPTION_COLUMNS, has_options, is_option_column, option_question
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
JOIN = " + "  # between the names of columns whose texts are one question, such as `instruction + input`
# Columns that are a question only together: alpaca, dolly, SVAMP, SQuAD, BoolQ, RACE.
_TOGETHER = (
    *(("instruction", "input"), ("instruction", "context"), ("body", "question"), ("context", "question")),
    *(("passage", "question"), ("article", "question")),
)
# Column names of common data sets in small letters, the most certain first.
USUAL_NAMES = {
    "question": (
        *(f"{first}{JOIN}{second}" for first, second in _TOGETHER if second == "question"),
        *("question", "problem", "prompt", "query"),
        *(f"{first}{JOIN}{second}" for first, second in _TOGETHER if second != "question"),
        *("input", "instruction", "text"),
        *("question_text", "question_stem", "problem_statement", "messages", "conversations"),
    ),
    "answer": (
        *("reward_model.ground_truth", "answer", "final_answer", "ground_truth", "gold", "target", "expected_answer"),
        *("expected", "reference_answer", "gold_answer", "correct_answer", "ideal", "label", "solution", "output"),
        *("answer.value", "answer.text", "answers.text", "answers", "response", "completion"),
        *("messages.assistant", "conversations.assistant", "completion.assistant", "prompt.assistant"),
    ),
    "subject": ("subject", "type", "category", "topic", "subfield", "problem_type", "data_source"),
    "difficulty": ("difficulty", "level"),
    "id": ("id", "unique_id", "question_id", "problem_id", "uuid", "task_id"),
}
ASSISTANT = ".assistant"  # ends the name of the last message of a conversation
# The column of the tests in HumanEval and MBPP, each with another column by which the data set is known.
_TEST_COLUMNS = {"test": "entry_point", "test_list": "code"}
# The answer in data sets with options: the most certain first.
_OPTION_ANSWERS = ("answerKey", "Correct Answer", "correct_answer", "answer", "Answer", "correct", "cop", "label")
# A cell that looks like a whole solution, where a reference answer is expected.
MAX_ANSWER_CHARACTERS = 100
MAX_ANSWER_WORDS = 12
MARKS: dict[Extraction, tuple[str, ...]] = {"hashes": ("####",), "boxed": ("\\boxed", "\\fbox")}
SHOWN_NAMES = 12  # of columns in a sentence
_UNIT_IN_BRACKETS = re.compile(r"[-\d.,/]*\d\s*\([^\W\d_]{2,}(?: [^\W\d_]+)*\)")  # ASDiv's `9 (apples)`
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
        named = (*self.question.split(JOIN), self.answer, self.subject, self.difficulty, self.id, *beside)
        return list(dict.fromkeys(name for name in named if name))

    def question_of(self, record: Mapping[str, Any]) -> Question:
        """The question of a row. Error: QuestionFileError."""
        row = dict(record)
        if self.question not in row and JOIN in self.question:
            row[self.question] = _joined(row, self.question)
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
        if self.answer.endswith("ground_truth"):
            row[self.answer] = _only_item(row.get(self.answer))
        question = text_of(row, self.question)
        return Question(
            id=(id_of(row, self.id) if self.id else "") or derived_id(question),
            question=question,
            answer=extracted(text_of(row, self.answer), self.extraction, self.answer),
            subject=_slice(row, self.subject),
            difficulty=_slice(row, self.difficulty),
        )


def _joined(row: Mapping[str, Any], names: str) -> str:
    """The texts of several columns as one question; the first is needed, the others may be empty."""
    first, *others = names.split(JOIN)
    texts = [text_of(dict(row), first), *(optional_text(dict(row), name) for name in others)]
    return "\n\n".join(text.strip() for text in texts if text.strip())


def _only_item(value: Any) -> Any:
    """The text in a JSON list of one, as some reference answers are written: `["4"]`."""
    if isinstance(value, str) and value.startswith('["'):
        with suppress(ValueError, RecursionError):
            items = json.loads(value)
            return items[0] if len(items) == 1 and isinstance(items[0], str) else value
    return value


def _question_of_messages(messages: list[Any], column: str) -> str:
    """The text of a conversation with one question: the user's message, after the system's; an answer that follows it
    is left out. Error: QuestionFileError."""
    if not is_messages(messages):
        text = "is a list, but not of messages such as {'role': 'user', 'content': 'What is 2+2?'}"
        raise QuestionFileError(f"{column!r} {text}")
    roles = [role_of(message) for message in messages]
    asked = messages[:-1] if roles[-1] == "assistant" else messages
    if roles[: len(asked)] not in (["user"], ["system", "user"]):
        text = "is a list, but not of one message of a user, which one of the system may precede"
        raise QuestionFileError(f"{column!r} {text}: its roles are {', '.join(roles)[:80]}")
    texts = [text_of_message(message) for message in asked]
    if None in texts:
        raise QuestionFileError(f"{column!r} has a part that is no text, such as a picture")
    return "\n\n".join(text.strip() for text in texts if text and text.strip())


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


# The guess


@dataclass(frozen=True)
class Guess:
    """The most likely mapping; a part is empty where no column fits.

    notes: sentences about what is left out or looks wrong.  missing: by part, why no column is guessed.
    """

    mapping: QuestionMapping
    notes: list[str]
    missing: dict[str, str]


def guess(
    columns: Sequence[str], records: Sequence[Mapping[str, Any]], given: Mapping[str, str] | None = None
) -> Guess:
    """What the columns mean, by their names and by most of some rows: one odd row changes nothing.

    given: parts of the mapping that the user has chosen, and `verifier`.
    """
    given = given or {}
    by_name = {name.strip().lower().replace(" ", "_"): name for name in reversed(columns)}
    for pair in _TOGETHER:
        own_names = [by_name[one] for one in pair if one in by_name]
        if len(own_names) == 2 and all(isinstance(row.get(one), str | None) for row in records for one in own_names):
            by_name[JOIN.join(pair)] = JOIN.join(own_names)
    candidates = {part: [by_name[one] for one in names if one in by_name] for part, names in USUAL_NAMES.items()}
    usable = {part: [name for name in names if _is_usable(part, name, records)] for part, names in candidates.items()}
    own = {part: next(iter(names), "") for part, names in usable.items()}
    answers = [one for one in usable["answer"] if one != own["question"]]
    short = [one for one in answers if _marked(_cells(one, records)) or not _are_solutions(_cells(one, records))]
    own["answer"] = next((one for one in [*short, *answers] if one in short or not one.endswith(ASSISTANT)), "")
    parts = {**own, **_format(columns, records, own, given)}
    parts |= {name: value for name, value in given.items() if name != "verifier"}
    mapping = QuestionMapping(**parts)
    if "extraction" not in parts:
        mapping = replace(mapping, extraction=_marked(_cells(mapping.answer, records)) or "as_is")
    return Guess(mapping, notes_on(mapping, columns, records), _missing(mapping, columns, answers))


def notes_on(mapping: QuestionMapping, columns: Sequence[str], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about what a mapping leaves out, and answers that look like no reference answers."""
    notes = []
    cells = _cells(mapping.answer, records)
    if mapping.extraction == "as_is" and cells:
        solutions = [cell for cell in cells if _is_solution(cell)]
        if len(solutions) * 10 >= len(cells):
            text = f"{len(solutions)} of the first {len(cells)} reference answers in {mapping.answer!r} look like whole"
            notes.append(f"{text} solutions, which few responses will equal: choose another column or answer format.")
        if len(units := [cell for cell in cells if _UNIT_IN_BRACKETS.fullmatch(cell.strip())]) * 10 >= len(cells):
            text = f"{len(units)} of the first {len(cells)} reference answers have words in brackets behind a number"
            notes.append(f"{text}, such as {units[0]!r}, which verifiers compare too: write the number alone.")
    used = {*mapping.columns, mapping.question}
    is_used = is_option_column if mapping.extraction == "options" else lambda _: False
    left_out = [n for n in columns if n not in used and not is_used(n) and _is_text(n, records)]
    if left_out:
        notes.append(f"Columns of text that are left out: {_listed(left_out)}.")
    return notes


def _missing(mapping: QuestionMapping, columns: Sequence[str], answers: Sequence[str]) -> dict[str, str]:
    """By part the sentence that says why no column was guessed."""
    here = f"the columns here are {_listed(columns)}"
    missing = {} if mapping.question else {"question": f"No column is known to hold the question: {here}."}
    if not mapping.answer and answers:
        text = f"{answers[0]!r}, the last message of the assistant, is a whole response and no reference answer"
        missing["answer"] = f"{text}: {here}."
    elif not mapping.answer and {"chosen", "rejected"} <= set(columns):
        missing["answer"] = f"Pairs of a chosen and a rejected response have no reference answer: {here}."
    elif not mapping.answer:
        missing["answer"] = f"No column is known to hold the reference answer: {here}."
    return missing


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def _format(
    columns: Sequence[str], records: Sequence[Mapping[str, Any]], own: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, Any]:
    """The format of a data set with columns of its own; empty for another, and where the user has chosen otherwise."""
    parts = _known_format(columns, records, own)
    if not parts:
        return {}
    extraction, answer = parts["extraction"], given.get("answer")
    is_other = given.get("extraction", extraction) != extraction or (
        extraction != "options" and answer not in (None, parts["answer"])
    )
    return {} if is_other or given.get("verifier") not in (None, *FORMAT_KINDS[extraction]) else parts


def _known_format(
    columns: Sequence[str], records: Sequence[Mapping[str, Any]], own: Mapping[str, str]
) -> dict[str, Any]:
    if ID_COLUMN in columns and ARGUMENT_COLUMN in columns:
        return {"answer": ID_COLUMN, "extraction": "instructions"}
    if "nums" in columns and "target" in columns:
        return {"question": "nums", "answer": "target", "extraction": "countdown"}
    if any(has_options(record) for record in records):
        answers = [name for name in _OPTION_ANSWERS if name in columns and _is_usable("answer", name, records)]
        question = "Question" if INCORRECT_COLUMNS[0] in columns else own["question"]
        return {"answer": next(iter(answers), own["answer"]), "question": question, "extraction": "options"}
    for column, beside in _TEST_COLUMNS.items():
        if column in columns and beside in columns:
            return {"answer": column, "extraction": "tests"}
    return {}


def _is_usable(part: str, name: str, records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether most rows have a value of the part's kind there; of subjects and difficulties, any."""
    values = [record.get(name.split(JOIN)[0]) for record in records]
    texts = [text for value in values if isinstance(value, str | int | float) and (text := str(value).strip())]
    if part in ("subject", "difficulty"):
        return (
            bool(texts)
            and all(isinstance(one, str | int | None) for one in values)
            and max(map(len, texts)) <= MAX_SLICE_LENGTH
        )
    if part == "id":
        return len(set(texts)) == len(values) and max(map(len, texts), default=0) <= MAX_SLICE_LENGTH
    lists = [value for value in values if isinstance(value, list) and (is_messages(value) or part == "answer")]
    return 2 * (len(texts) + len(lists)) > len(values)


def _cells(name: str, records: Sequence[Mapping[str, Any]]) -> list[str]:
    values = [record.get(name) for record in records]
    items = [value[0] if isinstance(value, list) and value else value for value in values]
    return [cell for cell in items if isinstance(cell, str) and cell.strip()]


def _marked(cells: Sequence[str]) -> Extraction | None:
    """The marks that at least half of the cells have around their answer."""
    for extraction, marks in MARKS.items():
        if cells and 2 * sum(any(mark in cell for mark in marks) for cell in cells) >= len(cells):
            return extraction
    return None


def _is_solution(cell: str) -> bool:
    text = cell.strip()
    if text.startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            json.loads(text)
            return False  # an answer with its parts, as some verifiers read
    return len(text) > MAX_ANSWER_CHARACTERS or "\n" in text or len(text.split()) > MAX_ANSWER_WORDS


def _are_solutions(cells: Sequence[str]) -> bool:
    return 2 * sum(map(_is_solution, cells)) >= max(len(cells), 1)


def _is_text(name: str, records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether most of a column's values are words, not numbers or lists."""
    values = [value for record in records if (value := record.get(name)) not in (None, "")]
    words = [value for value in values if isinstance(value, str) and re.search(r"[^\W\d_]", value)]
    return 2 * len(words) > len(values)
