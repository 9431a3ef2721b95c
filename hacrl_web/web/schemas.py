"""Base of request bodies of the API, and the shape of lists in its answers.

Answers are typed dictionaries: the OpenAPI document describes them, and pydantic checks them without copying models.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ninja import Schema
from pydantic import ConfigDict
from typing_extensions import TypedDict

Item = TypeVar("Item")
Number = int | float  # an answer keeps the type of the value
# The __pydantic_config__ of a dataclass with defaults: the OpenAPI document then says that answers hold every field.
EVERY_FIELD = ConfigDict(json_schema_serialization_defaults_required=True)


class StrictBody(Schema):
    """A request body: unknown keys are refused, and true is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PageOf(TypedDict, Generic[Item]):
    """A page of a list. `next` goes into `cursor`; null on the last page."""

    items: list[Item]
    count: int
    next: str | None
