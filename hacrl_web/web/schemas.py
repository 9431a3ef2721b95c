"""The base class of request bodies of the API, and the shape of lists in its answers.

Answers are typed dictionaries: the OpenAPI document describes them, and pydantic checks them without copying models.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, TypeVar, get_origin

from ninja import Query, Schema
from pydantic import ConfigDict, create_model
from typing_extensions import TypedDict

from hacrl_web.web.page_query import MAX_TEXT, PageQuery

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


def query_schema(page: type[PageQuery], without: Collection[str] = ()) -> Any:
    """The parameters of a page's address, as texts, for an operation that reads them as the page does."""
    fields: dict[str, Any] = {}
    for own, field in page.model_fields.items():
        is_list, name = get_origin(field.annotation) is tuple, field.alias or own
        if name not in without:
            fields[name] = (list[str], Query([])) if is_list else (str, Query("", max_length=MAX_TEXT))
    return create_model(f"{page.__name__}Parameters", __base__=Schema, **fields)
