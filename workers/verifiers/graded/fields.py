"""Partial credit for JSON: the share of fields that are right.

The reference answer is an object of expected values, or a JSON Schema whose properties the answer's object must have.
Of JSON Schema the keywords in SCHEMA_KEYWORDS are allowed, none of which takes long or reads elsewhere; a reference
with another one cannot be scored. Text alone decides, within bounds of size and depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.validators import extend

from workers.verifiers.graded.words import answer_text
from workers.verifiers.scoring.verdicts import CORRECT, NO_REFERENCE, Verdict

MAX_FIELDS = 200
MAX_DEPTH = 20
NO_OBJECT = Verdict(0.0, "no JSON object")
SCHEMA_KEYWORDS = {
    *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "items", "minItems", "maxItems", "uniqueItems"),
    *("properties", "required", "additionalProperties"),
    *("title", "description", "default", "examples", "$schema", "$id", "$comment"),  # they check nothing
}
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)```", re.DOTALL)


def _all_differ(_: Any, is_wanted: bool, value: Any, schema: Any) -> Iterator[ValidationError]:
    """uniqueItems as `_same` compares, of the first 500 items: an answer must not take long."""
    items = value[:500] if is_wanted and isinstance(value, list) else []
    if any(_same(one, other) for place, one in enumerate(items) for other in items[:place]):
        yield ValidationError("two items are equal")


_Validator = extend(Draft202012Validator, {"uniqueItems": _all_differ})


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


@lru_cache(maxsize=4096)
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
    validator = _Validator(schema)

    def is_right(answer: dict[str, Any]) -> bool:
        if name not in answer:
            return not is_required
        try:
            return validator.is_valid(answer[name])
        except OverflowError:  # a whole number beyond every float
            return False

    return is_right


def _same(value: Any, expected: Any) -> bool:
    """Equal as JSON: true is not 1, 1.0 is 1; spaces around text do not count."""
    if isinstance(value, str) and isinstance(expected, str):
        return value.strip() == expected.strip()
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_same(value[name], expected[name]) for name in expected)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same, value, expected))
    return isinstance(value, bool) == isinstance(expected, bool) and bool(value == expected)


def _check_schema(schema: dict[str, Any]) -> None:
    """Error: _Unclear, if a schema is none, or has a keyword that is not allowed."""
    try:
        _Validator.check_schema(schema)
    except SchemaError as error:
        raise _Unclear(f"the reference answer is no JSON Schema: {error.message[:100]}") from None
    open_parts: list[Any] = [schema]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, dict):
            if unknown := next((keyword for keyword in part if keyword not in SCHEMA_KEYWORDS), ""):
                raise _Unclear(f"the keyword {unknown[:40]!r} of JSON Schema is not checked here")
            open_parts += [*part.get("properties", {}).values(), part.get("items"), part.get("additionalProperties")]
