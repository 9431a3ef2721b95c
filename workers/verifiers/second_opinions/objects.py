"""The second opinion on JSON objects: canonical texts for objects of values, the jsonschema package for schemas."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

from workers.verifiers.second_opinions.plain_answers import plain_answer

LIBRARY = "jsonschema"
MAX_DEPTH = 15  # fewer levels than the first verifier reads
MAX_FIELDS = 200
# Keywords on which the package and the first verifier may differ by the precision of a division, or by design.
_OTHER_KEYWORDS = ('"$', '"multipleOf"', '"pattern"', '"format"', '"not"', '"anyOf"', '"allOf"', '"oneOf"')


class _Unclear(ValueError):
    """What only the first verifier decides."""


def json_opinion(gold: str, response: str) -> float | None:
    """The share of the reference's fields that the response has right; None if that is unclear."""
    answer_text = plain_answer(response)
    if answer_text is None or _most_open(response) > MAX_DEPTH:
        return None
    if "{" not in answer_text:
        return 0.0
    fence, end = "```json\n", "\n```"
    if answer_text.startswith(fence) and answer_text.endswith(end) and answer_text.count("```") == 2:
        answer_text = answer_text[len(fence) : -len(end)].strip()
    try:
        answer, reference = _object(answer_text), _object(gold)
        results = _schema_results(answer, reference, gold) if "properties" in reference else _same(answer, reference)
    except (ValueError, RecursionError, OverflowError):
        return None
    return sum(results) / len(results) if 0 < len(results) <= MAX_FIELDS else None


def _most_open(text: str) -> int:
    """At least the depth of the value in a text: brackets within its texts count too."""
    depth = most = 0
    for letter in text:
        depth = max(0, depth + (letter in "{[") - (letter in "}]"))
        most = max(most, depth)
    return most


def _object(text: str) -> dict[str, Any]:
    """Error: ValueError, also for a name that stands twice."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in items}) != len(items):
            raise _Unclear
        return dict(items)

    def refuse(name: str) -> None:  # NaN and Infinity
        raise _Unclear

    value = json.loads(text.strip(), object_pairs_hook=pairs, parse_constant=refuse)
    if not isinstance(value, dict):
        raise _Unclear
    return value


def _same(answer: dict[str, Any], reference: dict[str, Any]) -> list[bool]:
    return [name in answer and _canonical(answer[name]) == _canonical(reference[name]) for name in reference]


def _canonical(value: Any) -> str:
    """One text for equal values. Errors: ValueError, OverflowError (no finite number)."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_canonical(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value.strip())
    return json.dumps(value) if value is None or isinstance(value, bool) else str(Fraction(value))


def _schema_results(answer: dict[str, Any], schema: dict[str, Any], gold: str) -> list[bool]:
    """Error: ValueError, where the package or the reference leaves doubt."""
    is_of_object = isinstance(schema["properties"], dict) and schema.get("type", "object") == "object"
    has_spaces = any(one != one.strip() for one in _texts([answer, schema]))
    if not is_of_object or find_spec(LIBRARY) is None or has_spaces or any(word in gold for word in _OTHER_KEYWORDS):
        raise _Unclear
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        raise _Unclear from None
    properties, required = schema["properties"], schema.get("required", [])
    results = []
    for name in {**properties, **dict.fromkeys(required)}:
        is_valid = Draft202012Validator(properties.get(name, True)).is_valid
        results.append(is_valid(answer[name]) if name in answer else name not in required)
    if schema.get("additionalProperties") is False:
        results.append(all(name in properties or name in required for name in answer))
    return results


def _texts(value: Any) -> list[str]:
    """All texts in a value, names of fields too."""
    if isinstance(value, str):
        return [value]
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in _texts(part)]
