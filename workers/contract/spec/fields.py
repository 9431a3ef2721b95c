"""The contract's alphabet: a section of settings, and a setting that carries its bounds, help text and source."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# What a name may not hold: control characters, and those that turn the writing direction of the rest of the page.
UNPRINTABLE = r"\x00-\x1f\x7f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"


class SettingsSection(BaseModel):
    """A group of settings: immutable, finite numbers only, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, str_strip_whitespace=True)


def setting(default: Any = ..., *, help: str, source: str, label: str = "", unit: str = "", **bounds: Any) -> Any:
    """A field that explains itself: help text, where its default comes from, and its unit."""
    extra = {"source": source, "label": label, "unit": unit}
    return Field(default, description=help, json_schema_extra={k: v for k, v in extra.items() if v}, **bounds)


def holds_question(template: str) -> str:
    """A validator: the template as it is. Error: ValueError where the question has no place in it."""
    if "{question}" not in template:
        raise ValueError("the template must contain {question}")
    return template


def _plain_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    if isinstance(value, str) and "_" in value:  # Python would read 1_0 as 10
        raise ValueError("a number has no underscore in it")
    return value


def _empty_is_none(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


Count = Annotated[int, BeforeValidator(_plain_number)]
Number = Annotated[float, BeforeValidator(_plain_number)]
# Empty (also an empty text, as a form sends it) means: the algorithm's own value.
OwnNumber = Annotated[Number | None, BeforeValidator(_empty_is_none)]
