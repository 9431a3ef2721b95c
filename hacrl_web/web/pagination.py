"""Lists of the API: {"items", "count", "next"}, with cursors that keep their place while rows come and go.

A cursor encodes the ordering values of the last row; the next page begins after them. Callers treat it as opaque.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Field, Q, QuerySet
from ninja import Query, Schema

from hacrl_web.web.errors import FieldErrors

MAX_LIMIT = 200
MAX_CURSOR = 1000


class ListQuery(Schema):
    """limit: rows of a page.  cursor: `next` of the page before."""

    limit: int = Query(50, ge=1, le=MAX_LIMIT)
    cursor: str = Query("", max_length=MAX_CURSOR)


def listing(rows: QuerySet[Any], query: ListQuery, as_item: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """A page of rows in their own order, which must end with a unique column. Error: FieldErrors at `cursor`.

    as_item: a row as the API answers it; default: the row itself.
    """
    order = _order(rows)
    remaining = rows.filter(_behind(rows, order, query.cursor)) if query.cursor else rows
    page = list(remaining[: query.limit + 1])
    after = page[query.limit - 1] if len(page) > query.limit else None
    page = page[: query.limit]
    return {
        "items": [as_item(row) for row in page] if as_item else page,
        "count": rows.count(),
        "next": None if after is None else _cursor_at(after, order),
    }


def _order(rows: QuerySet[Any]) -> list[str]:
    """Columns with their direction, such as -created_at."""
    order = rows.query.order_by or rows.model._meta.ordering
    return [str(name) for name in order]


def _cursor_at(row: Any, order: list[str]) -> str:
    names = [name.lstrip("-") for name in order]
    values = [row[name] if isinstance(row, dict) else getattr(row, name) for name in names]
    # Times keep their microseconds: without them, rows of the same millisecond would be skipped.
    text = json.dumps(
        values, default=lambda one: one.isoformat() if isinstance(one, datetime) else str(one), separators=(",", ":")
    )
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _behind(rows: QuerySet[Any], order: list[str], cursor: str) -> Q:
    """Rows after the cursor's: greater (or less) in the first column that differs."""
    values = _values(rows, order, cursor)
    condition, same = Q(), Q()
    for name, value in zip(order, values, strict=True):
        column, is_down = name.lstrip("-"), name.startswith("-")
        condition |= same & Q(**{f"{column}__{'lt' if is_down else 'gt'}": value})
        same &= Q(**{column: value})
    return condition


def _values(rows: QuerySet[Any], order: list[str], cursor: str) -> list[Any]:
    try:
        written = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(written, list) or len(written) != len(order):
            raise ValueError
        return [_value(_column(rows, name.lstrip("-")), value) for name, value in zip(order, written, strict=True)]
    except (ValueError, TypeError, OverflowError, RecursionError, ValidationError, binascii.Error):
        message = "This is not a cursor of this list: take `next` of the page before."
        raise FieldErrors.single("bad_cursor", message, "cursor") from None


def _column(rows: QuerySet[Any], name: str) -> Field[Any, Any]:
    if name == "pk":
        return rows.model._meta.pk
    try:
        return rows.model._meta.get_field(name)
    except FieldDoesNotExist:  # an annotation of the query
        return rows.query.annotations[name].output_field


def _value(column: Field[Any, Any], written: Any) -> Any:
    """The text as a value of the column. Errors: ValueError, TypeError, OverflowError, ValidationError."""
    value = column.to_python(written)
    if value is None or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise ValueError
    if isinstance(value, datetime):
        return value.astimezone(UTC)  # OverflowError outside of the years 1 to 9999
    if "\x00" in str(value):
        raise ValueError
    str(value).encode()  # UnicodeEncodeError for half of a surrogate pair, which JSON allows
    return value
