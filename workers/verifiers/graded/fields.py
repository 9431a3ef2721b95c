"""Partial credit for JSON: the share of fields that are right.

The reference answer is an object of expected values, or a JSON Schema whose properties the answer's object must have.
Of JSON Schema the keywords in SCHEMA_KEYWORDS are checked; a reference with another one cannot be scored. Text alone
decides, within bounds of size and depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from workers.verifiers.graded.answer_text import answer_text
from workers.verifiers.verdicts import CORRECT, NO_REFERENCE, Verdict

MAX_FIELDS = 200
MAX_DEPTH = 20
NO_OBJECT = Verdict(0.0, "no JSON object")
SCHEMA_KEYWORDS = {
    *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "items", "minItems", "maxItems", "uniqueItems"),
    *("properties", "required", "additionalProperties"),
    *("title", "description", "default", "examples", "$schema", "$id", "$comment"),  # they check nothing
}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, bound: value % bound == 0,
}
_SIZES: dict[str, tuple[type, Callable[[int, int], bool]]] = {
    "minLength": (str, lambda size, bound: size >= bound),
    "maxLength": (str, lambda size, bound: size <= bound),
    "minItems": (list, lambda size, bound: size >= bound),
    "maxItems": (list, lambda size, bound: size <= bound),
}
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)```", re.DOTALL)


class _Unclear(ValueError):
    """A reference that no answer can be compared with; the text says why."""


def json_verdict(completion: str, gold: str) -> Verdict:
    """The share of the reference's fields that the answer's object has right."""
    if not gold.strip():
        return NO_REFERENCE
    try:
        checks = _checks(gold)
    except _Unclear as unclear:
        return Verdict(None, f"unscorable: {unclear}")
    answer = json_object(answer_text(completion))
    if answer is None:
        return NO_OBJECT
    wrong = [name for name, is_right in checks.items() if not is_right(answer)]
    if not wrong:
        return CORRECT
    share = round(1 - len(wrong) / len(checks), 6)
    return Verdict(share, f"{len(checks) - len(wrong)} of {len(checks)} fields, not {', '.join(wrong[:3])[:100]}")


def unclear_object(gold: str) -> str:
    """Why no answer can be compared with the gold; empty if one can."""
    try:
        _checks(gold)
    except _Unclear as unclear:
        return str(unclear)
    return ""


def json_object(text: str) -> dict[str, Any] | None:
    """The object that a text is, or that its last fenced block is, or what is between its first { and last }."""
    fenced = _FENCE.findall(text)
    for part in (text, *fenced[-1:], text[text.find("{") : text.rfind("}") + 1]):
        value = _read(part.strip())
        if isinstance(value, dict):
            return value
    return None


def _read(text: str) -> Any:
    """A JSON value; None if it is none, or has NaN, or is too deep. A name that stands twice is refused too."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name stands twice")
        return dict(pairs)

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return value if _depth(value) <= MAX_DEPTH else None


def _depth(value: Any, depth: int = 1) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth if depth > MAX_DEPTH else max((_depth(one, depth + 1) for one in inner), default=depth)


def _checks(gold: str) -> dict[str, Callable[[dict[str, Any]], bool]]:
    """By name of a field what decides on an answer's object. Error: _Unclear."""
    reference = _read(gold.strip())
    if not isinstance(reference, dict):
        raise _Unclear("the reference answer is no JSON object")
    if isinstance(reference.get("properties"), dict) and reference.get("type", "object") == "object":
        _check_schema(reference)
        required = reference.get("required", [])
        properties = reference["properties"] | {name: {} for name in required if name not in reference["properties"]}
        checks = {name: _schema_check(name, schema, name in required) for name, schema in properties.items()}
        if reference.get("additionalProperties") is False:
            checks["no other field"] = lambda answer: set(answer) <= set(properties)
    else:
        checks = {name: _value_check(name, value) for name, value in reference.items()}
    if not 0 < len(checks) <= MAX_FIELDS:
        raise _Unclear(f"the reference answer has {len(checks)} fields, 1 to {MAX_FIELDS} can be scored")
    return checks


def _value_check(name: str, expected: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda answer: name in answer and _same(answer[name], expected)


def _schema_check(name: str, schema: Any, is_required: bool) -> Callable[[dict[str, Any]], bool]:
    return lambda answer: _fits(answer[name], schema) if name in answer else not is_required


def _same(value: Any, expected: Any) -> bool:
    """Equal as JSON: true is not 1, 1.0 is 1; spaces around text do not count."""
    if isinstance(value, str) and isinstance(expected, str):
        return value.strip() == expected.strip()
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_same(value[name], expected[name]) for name in expected)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same, value, expected))
    return isinstance(value, bool) == isinstance(expected, bool) and bool(value == expected)


def _check_schema(schema: Any) -> None:
    """Error: _Unclear, if a schema has a keyword that is not checked, or a value of the wrong kind."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _Unclear("a schema is an object, true or false")
    for keyword, value in schema.items():
        if keyword not in SCHEMA_KEYWORDS:
            raise _Unclear(f"the keyword {keyword[:40]!r} of JSON Schema is not checked here")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        types = value if isinstance(value, list) else [value]
        if (
            (keyword == "type" and not all(isinstance(one, str) and one in _TYPES for one in types))
            or (keyword in (*_BOUNDS, *_SIZES) and not is_number)
            or (keyword == "multipleOf" and value <= 0)
            or (keyword == "enum" and not isinstance(value, list))
            or (keyword == "required" and not (isinstance(value, list) and all(isinstance(one, str) for one in value)))
            or (keyword == "additionalProperties" and not isinstance(value, bool))
            or (keyword == "properties" and not isinstance(value, dict))
        ):
            raise _Unclear(f"the keyword {keyword!r} has a value that means nothing")
    for part in (*schema.get("properties", {}).values(), schema.get("items", True)):
        _check_schema(part)


def _fits(value: Any, schema: Any) -> bool:
    """Whether a value is valid by a schema that `_check_schema` accepts."""
    if isinstance(schema, bool):
        return schema
    types = schema.get("type", [])
    if types and not any(_TYPES[name](value) for name in (types if isinstance(types, list) else [types])):
        return False
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    if _TYPES["number"](value) and not _in_bounds(value, schema):
        return False
    size = len(value) if isinstance(value, str | list) else 0
    if not all(
        fits(size, schema[keyword])
        for keyword, (kind, fits) in _SIZES.items()
        if keyword in schema and type(value) is kind
    ):
        return False
    if isinstance(value, list):
        is_repeated = schema.get("uniqueItems") is True and any(
            _same(one, other) for place, one in enumerate(value[:500]) for other in value[:place]
        )
        return not is_repeated and all(_fits(one, schema.get("items", True)) for one in value)
    return not isinstance(value, dict) or _object_fits(value, schema)


def _in_bounds(value: float, schema: dict[str, Any]) -> bool:
    try:
        return all(fits(value, schema[keyword]) for keyword, fits in _BOUNDS.items() if keyword in schema)
    except OverflowError:  # a whole number beyond every float
        return False


def _object_fits(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") is False and not set(value) <= set(properties):
        return False
    return all(name in value for name in schema.get("required", [])) and all(
        _fits(value[name], part) for name, part in properties.items() if name in value
    )
