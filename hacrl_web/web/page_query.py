"""Reads the query of a page's address: each page has a frozen model, whose fields are the page's parameters.

Users share, store and edit addresses, so an unreadable value counts as absent: the field keeps its default, and
`ignored` names it. Forms use `whole_number` and `uuid_or_none` for single values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self, get_origin
from urllib.parse import urlencode
from uuid import UUID

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, QueryDict
from pydantic import BaseModel, BeforeValidator, ConfigDict, PrivateAttr, ValidationError

MAX_TEXT = 200
MAX_WHOLE = 2**31 - 1  # of a 32-bit column
MAX_ID = 2**63 - 1


def clean_text(text: str) -> str:
    """The text without NUL (databases refuse it) and outer spaces, at most MAX_TEXT characters."""
    return text.replace("\x00", "").strip()[:MAX_TEXT]


def whole_number(text: Any, most: int = MAX_WHOLE) -> int | None:
    """The number in ASCII digits; None for another text, and above `most`."""
    text = str(text)
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most
    return int(text) if is_number else None


def uuid_or_none(text: Any) -> UUID | None:
    """The UUID that a text spells, or None."""
    try:
        return UUID(str(text))
    except ValueError:
        return None


def _whole_or_error(most: int) -> BeforeValidator:
    def number(text: Any) -> int:
        value = whole_number(text, most)
        if value is None:
            raise ValueError(f"a whole number from 0 to {most}")
        return value

    return BeforeValidator(number)


Text = Annotated[str, BeforeValidator(clean_text)]
Whole = Annotated[int, _whole_or_error(MAX_WHOLE)]
RowId = Annotated[int, _whole_or_error(MAX_ID)]


class PageQuery(BaseModel):
    """The parameters of an address. A tuple field takes every value of its parameter, any other field the last one.

    A parameter that is a Python word gets `Field(alias=...)`.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)
    _ignored: tuple[str, ...] = PrivateAttr(())

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the parameters whose values could not be read."""
        return self._ignored

    @classmethod
    def read(cls, query: QueryDict) -> Self:
        """The query with unreadable values left out."""
        values = {
            key: query.getlist(key) if get_origin(field.annotation) is tuple else query[key]
            for name, field in cls.model_fields.items()
            if (key := field.alias or name) in query
        }
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            unreadable = {str(one["loc"][0]) for one in error.errors()}
        page_query = cls.model_validate({key: value for key, value in values.items() if key not in unreadable})
        page_query._ignored = tuple(sorted(unreadable))
        return page_query

    def encode(self, **changes: Any) -> str:
        """The query string with some fields changed (by parameter name); defaults and empty values are left out."""
        values = self.model_dump(mode="json", by_alias=True, exclude_defaults=True) | changes
        return encode_query(values)


def encode_query(values: Mapping[str, Any]) -> str:
    """A query string of the values that are neither None nor empty."""
    return urlencode({key: value for key, value in values.items() if value not in (None, "", [], ())}, doseq=True)


def one_of(value: str, allowed: Iterable[str], default: str = "") -> str:
    """The value if it is one of those known only at run time, else the default."""
    return value if value in allowed else default


def page_of(request: HttpRequest, rows: Any, size: int, count: int | None = None) -> Page:
    """The page of `rows` that the address names by `page`: the first if it names none, the last if too high.

    count: how many rows there are, where it is known.
    """
    paginator = Paginator(rows, size)
    if count is not None:
        paginator.count = count
    return paginator.get_page(request.GET.get("page"))
