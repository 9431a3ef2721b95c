r"""The answer of a whole response: its last box, what it states, the formula at its end, or its last number.

What a response takes back is no answer: what it states behind the retraction counts. Standard library only.
"""

from __future__ import annotations

from workers.contract.verifier_kinds import ResponseExtraction
from workers.verifiers.mathematics.extraction import (
    Statement,
    after_thoughts,
    has_box,
    joined_boxes,
    last_box,
    last_statement,
    shown,
)
from workers.verifiers.mathematics.last_number import last_number, numbers_at_end
from workers.verifiers.mathematics.statements.closing import closing_formula, without_aside
from workers.verifiers.mathematics.statements.negation_words import is_unstated
from workers.verifiers.mathematics.statements.retractions import taken_back
from workers.verifiers.mathematics.units import counted_number

_MOST_RETRACTIONS = 8


def answer_in(completion: str, extraction: ResponseExtraction, *, is_list: bool = False) -> str | None:
    """The answer of a response, or None.

    extraction: flexible reads the last number where nothing is stated; is_list: whether the reference is a list, so
    that several boxes, formulas or numbers with only `,`, `and` or `or` between them are one answer.
    """
    text = shown(after_thoughts(completion))
    for _ in range(_MOST_RETRACTIONS):
        if has_box(text):
            statement = last_box(text)
            if statement is None:
                return None
            if is_unstated(text[: statement.start], text[statement.end :]):
                text = f"{text[: statement.start]} {text[statement.end :]}"
                continue
            if listed := joined_boxes(text, is_list=is_list):
                statement = Statement(listed, statement.end)
        else:
            statement = last_statement(text)
            if statement is None:
                return _unstated(text, extraction, is_list=is_list)
        place = taken_back(statement.answer, text[statement.end :])
        if place is None:
            is_empty = not statement.answer.strip() and not has_box(text)
            if is_empty and extraction == "flexible":
                return last_number(text)
            return statement.answer if statement.start >= 0 else counted_number(statement.answer)
        text = text[statement.end + place :]
    return None


def _unstated(text: str, extraction: ResponseExtraction, *, is_list: bool) -> str | None:
    """The formula at the end, or a list of them; flexible, without any: the last number, or the last numbers."""
    formula = closing_formula(text, is_list=is_list)
    if formula or extraction == "strict":
        return formula or None
    if text.rfind("<answer>") > text.rfind("</answer>"):
        return None  # cut off within its answer, as an open box
    if is_list and (numbers := numbers_at_end(text)):
        return numbers
    return last_number(without_aside(text)) or last_number(text)
