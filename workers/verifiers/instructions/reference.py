"""The reference answer of an instruction-following question: the instructions of IFEval's columns, as one JSON text.

IFEval (arXiv 2311.07911) names each instruction, such as `length_constraints:number_words`, and gives its arguments in
a list beside the names.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from workers.verifiers.instructions.checks import CHECKS

ID_COLUMN = "instruction_id_list"
ARGUMENT_COLUMN = "kwargs"
INSTRUCTION_COLUMNS = (ID_COLUMN, ARGUMENT_COLUMN)
MAX_INSTRUCTIONS = 20
RELATIONS = ("at least", "less than")

_LISTS = ("keywords", "forbidden_words")
_NUMBERS = re.compile(r"num_\w+|\w*frequency|nth_paragraph")
# The arguments of each instruction with their types: those of its check.
ARGUMENTS: dict[str, dict[str, type]] = {
    name: {
        one: list if one in _LISTS else int if _NUMBERS.fullmatch(one) else str
        for one in [*inspect.signature(check).parameters][1:]
    }
    for name, check in CHECKS.items()
}


class InstructionError(ValueError):
    """No instructions that can be checked; the text says which is wrong."""


def instructions_of_row(row: Mapping[str, Any]) -> str:
    """The reference answer of a row in IFEval's columns. Error: InstructionError."""
    names, arguments = (_list(row.get(column), column) for column in INSTRUCTION_COLUMNS)
    if len(names) != len(arguments):
        raise InstructionError(f"{ID_COLUMN!r} has {len(names)} entries and {ARGUMENT_COLUMN!r} {len(arguments)}")
    pairs = []
    for name, values in zip(names, arguments, strict=True):
        if not isinstance(values, Mapping | None):
            raise InstructionError(f"{ARGUMENT_COLUMN!r} must be a list of objects")
        options = {key: _whole(value) for key, value in (values or {}).items() if value is not None}
        # A table of all questions has every argument in each row; those of other instructions are dropped.
        pairs.append([name, {key: options[key] for key in ARGUMENTS.get(str(name), {}) if key in options}])
    text = json.dumps(pairs, ensure_ascii=False)
    read_reference(text)
    return text


def read_reference(gold: str) -> list[tuple[str, dict[str, Any]]]:
    """The instructions, each with its arguments. Error: InstructionError."""
    try:
        pairs = json.loads(gold)
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, list) or not 0 < len(pairs) <= MAX_INSTRUCTIONS:
        raise InstructionError(f"the reference answer is no list of 1 to {MAX_INSTRUCTIONS} instructions")
    result = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[1], dict):
            raise InstructionError("each instruction is [name, arguments]")
        name, arguments = str(pair[0]), pair[1]
        _check(name, arguments)
        result.append((name, {key: arguments[key] for key in ARGUMENTS[name]}))
    return result


def _check(name: str, arguments: Mapping[str, Any]) -> None:
    """Error: InstructionError."""
    if name not in ARGUMENTS:
        raise InstructionError(f"the instruction {name[:60]!r} is unknown")
    for key, kind in ARGUMENTS[name].items():
        value: Any = arguments.get(key)
        is_kind = isinstance(value, kind) and not isinstance(value, bool)
        if not is_kind:
            raise InstructionError(f"{name} needs {key!r}, {_KINDS[kind]}")
        if kind is list and not (value and all(isinstance(one, str) and one for one in value)):
            raise InstructionError(f"{name} needs {key!r}, a list of texts")
        if key.endswith("relation") and value not in RELATIONS:
            raise InstructionError(f"{key!r} of {name} is {' or '.join(RELATIONS)}")
        if kind is str and not value.strip():
            raise InstructionError(f"{name} has an empty {key!r}")
        if key == "nth_paragraph" and value < 1:
            raise InstructionError(f"{key!r} of {name} counts from 1")


_KINDS = {list: "a list", str: "a text", int: "a whole number"}


def _list(value: Any, column: str) -> list[Any]:
    """The list in a cell. Error: InstructionError."""
    if isinstance(value, str):  # CSV has it as text
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list):
        raise InstructionError(f"{column!r} must be a list")
    return value


def _whole(value: Any) -> Any:
    """3 for the 3.0 of a table."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
