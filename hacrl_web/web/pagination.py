"""Lists of the API: one shape, {"items", "count", "next"}, and cursors that stand still while rows come and go.

A cursor holds the values of the last row in the order of the list; the next page begins behind them. To a caller it is
a text without meaning.
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

from hacrl_web.web.errors import FieldError, FieldErrors

MAX_LIMIT = 200
MAX_CURSOR = 1000


class ListQuery(Schema):
    """limit: rows of a page.  cursor: `next` of the page before."""

    limit: int = Query(50, ge=1, le=MAX_LIMIT)
    cursor: str = Query("", max_length=MAX_CURSOR)


def listing(rows: QuerySet[Any], query: ListQuery, as_item: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """A page of rows in their own order, which must end with a unique column. Error: FieldErrors at `cursor`.

    shown: what the API tells of a row; the row itself where it is left out.
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
    text = json.dumps(values, default=_written, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _written(value: Any) -> str:
    """Times with their microseconds: with fewer, rows of the same millisecond would be passed over."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _behind(rows: QuerySet[Any], order: list[str], cursor: str) -> Q:
    """Rows that come after the cursor's: beyond it in the first column in which they differ."""
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
        message = "This is no cursor of this list: take `next` of the page before."
        raise FieldErrors([FieldError("bad_cursor", message, "cursor")]) from None


def _column(rows: QuerySet[Any], name: str) -> Field[Any, Any]:
    if name == "pk":
        return rows.model._meta.pk
    try:
        return rows.model._meta.get_field(name)
    except FieldDoesNotExist:  # worked out by the query
        return rows.query.annotations[name].output_field


def _value(column: Field[Any, Any], written: Any) -> Any:
    """As the column has it. Errors: ValueError, TypeError, OverflowError, ValidationError."""
    value = column.to_python(written)
    if value is None or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise ValueError
    if isinstance(value, datetime):
        return value.astimezone(UTC)  # no database holds what is before the year 1 or after 9999 there
    if "\x00" in str(value):
        raise ValueError
    str(value).encode()  # half of a surrogate pair is text in JSON, and nowhere else
    return value
