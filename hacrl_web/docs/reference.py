"""The reference of settings: RunSpec as Markdown. A test compares the page with it; to write the page again:

python -m hacrl_web.docs.reference > docs/settings.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.registry import algorithms, settings_schema
from workers.contract.settings import SettingsSection
from workers.contract.spec.algorithm import DEFAULT
from workers.contract.spec.run import RunSpec

_KINDS = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text", "array": "list"}
_KINDS |= {"object": "keys and values"}
# Bounds as pydantic stores them with a field, in the order of the text.
_BOUNDS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
_LENGTHS = {"min_length": "at least {}", "max_length": "at most {}"}

INTRODUCTION = """# Settings of a run

This page is generated from `RunSpec`, which the form, the API and the trainer read; it refuses any other setting.
A run's Config tab and `spec.json` in its folder contain every one of these settings, defaults included.
"[]" is a list: `agents[].lora_rank` is a setting of each agent.
"Source" is where a default comes from: a place in arXiv 2603.02604, a program, or this one ("product", "design",
"ours").
"""


@dataclass(frozen=True)
class Setting:
    """One field of RunSpec; `section` is the class that defines it."""

    name: str
    section: str
    kind: str
    default: str
    unit: str
    help: str
    source: str


@cache
def settings() -> tuple[Setting, ...]:
    """All settings of a run, in the order of the specification."""
    return tuple(_walk(RunSpec, ""))


@cache
def names() -> frozenset[str]:
    """Dotted names, such as `algorithm.delta`."""
    return frozenset(setting.name for setting in settings() if "." in setting.name)


def markdown() -> str:
    """The page: a table for each section."""
    parts = [INTRODUCTION]
    by_section: dict[str, list[Setting]] = {}
    for setting in settings():
        by_section.setdefault(setting.section, []).append(setting)
    for section, members in by_section.items():
        parts.append(f"\n## {section}\n\n| setting | value | default | meaning | source |\n|---|---|---|---|---|")
        parts += [
            f"| `{one.name}` | {_cell(one.kind)}{', ' + one.unit if one.unit else ''} | {_cell(one.default)} "
            f"| {_cell(one.help)} | {_cell(one.source)} |"
            for one in members
        ]
    return "\n".join(parts) + "\n"


def _walk(model: type[SettingsSection], prefix: str) -> Iterator[Setting]:
    """A section's own settings, then those of its inner sections, so that each table is complete."""
    properties = model.model_json_schema()["properties"]
    inner: list[tuple[type[SettingsSection], str]] = []
    for name, field in model.model_fields.items():
        section_class = next(filter(_is_section, (field.annotation, *get_args(field.annotation))), None)
        if section_class:
            is_list = get_origin(field.annotation) is tuple
            inner.append((section_class, f"{prefix}{name}{'[]' if is_list else ''}."))
        if not section_class or field.description:  # a list of sections is itself a setting
            yield _setting(prefix, name, field, properties[name])
    for section, inner_prefix in inner:
        yield from _of_algorithms(inner_prefix) if issubclass(section, AlgorithmSpec) else _walk(section, inner_prefix)


def _of_algorithms(prefix: str) -> Iterator[Setting]:
    """The settings of all algorithms, each once, with the algorithms that have it where not all do."""
    names = list(algorithms())
    summaries = "; ".join(f"{name}: {cls.summary}" for name, cls in algorithms().items())
    section = prefix.rstrip(".")
    yield Setting(f"{prefix}name", section, " or ".join(names), DEFAULT, "", f"{summaries}.", "Sec. 3, Sec. 4.1")
    for name, schema in settings_schema().items():
        having = schema["algorithms"]
        one = _setting(prefix, name, algorithms()[having[0]].model_fields[name], schema)
        yield one if having == names else replace(one, help=f"{one.help} Of {', '.join(having)}.")


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, SettingsSection)


def _setting(prefix: str, name: str, field: FieldInfo, schema: dict[str, Any]) -> Setting:
    return Setting(
        name=prefix + name,
        section=prefix.rstrip(".") or "run",
        kind=_kind(schema, field),
        default="required" if field.is_required() else _value(field.default),
        unit=schema.get("unit", ""),
        help=field.description or "",
        source=schema.get("source", ""),
    )


def _kind(schema: dict[str, Any], field: FieldInfo) -> str:
    """`number, above 0, below 1, or empty`."""
    choices = [choice for choice in schema.get("anyOf", [schema]) if choice.get("type") != "null"]
    words = [_one_kind(choice) for choice in choices] + _bounds(field, is_text=choices[0].get("type") == "string")
    return ", ".join([*words, "or empty"] if len(choices) < len(schema.get("anyOf", choices)) else words)


def _one_kind(schema: dict[str, Any]) -> str:
    if "const" in schema or "enum" in schema:
        return " or ".join(_value(one) for one in schema.get("enum", [schema.get("const")]))
    return _KINDS[schema["type"]]


def _bounds(field: FieldInfo, *, is_text: bool) -> list[str]:
    """Bounds of the field; the schema lacks those of a field with its own validator."""
    unit = " characters" if is_text else ""
    words = []
    for bound in field.metadata:
        for key, text in (_BOUNDS | {key: text + unit for key, text in _LENGTHS.items()}).items():
            limit = getattr(bound, key, None)
            if limit is not None and (key, limit) != ("min_length", 1):
                words.append(text.format(_value(limit)))
    return words


def _value(value: Any) -> str:
    """A value as a user types it; "empty" for an empty one."""
    if value is None or value in ("", (), {}):
        return "empty"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value)


def _cell(text: str) -> str:
    """Text, escaped for a cell of a Markdown table. Code between backticks stays code."""
    parts = re.split(r"(`[^`|]+`)", text)
    return "".join(
        part if number % 2 else re.sub(r"([\\`*_|<>\[\]])", r"\\\1", part) for number, part in enumerate(parts)
    )


if __name__ == "__main__":
    print(markdown(), end="")
