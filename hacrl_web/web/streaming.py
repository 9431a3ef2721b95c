"""Files to save. Long ones are streamed as they are read and are never held in memory as a whole."""

from __future__ import annotations

import csv
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

LINES_AT_ONCE = 500


async def _served_async(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    """The pieces of a generator that reads the database, for a server that takes only asynchronous ones."""
    while (piece := await sync_to_async(lambda: next(pieces, None))()) is not None:
        yield piece


def download_pieces(request: HttpRequest, pieces: Iterator[Any], name: str, kind: str) -> StreamingHttpResponse:
    """A file of bytes or texts. name: plain ASCII without quotes.  kind: its media type."""
    content = _served_async(pieces) if isinstance(request, ASGIRequest) else pieces
    return StreamingHttpResponse(content, content_type=kind, headers=_saved_as(name))


def download(request: HttpRequest, lines: Iterator[str], name: str, kind: str) -> StreamingHttpResponse:
    """A file of many lines."""
    pieces = iter(lambda: "".join(islice(lines, LINES_AT_ONCE)), "")
    return download_pieces(request, pieces, name, f"{kind}; charset=utf-8")


def download_text(text: str, name: str, kind: str) -> HttpResponse:
    """A short file."""
    return HttpResponse(text, content_type=f"{kind}; charset=utf-8", headers=_saved_as(name))


def _saved_as(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def download_csv(request: HttpRequest, rows: Iterable[Iterable[Any]], name: str) -> StreamingHttpResponse:
    """A table to save. rows: with its heading first."""
    writer = csv.writer(_Echo())
    return download(request, (writer.writerow([csv_cell(cell) for cell in row]) for row in rows), name, "text/csv")


class _Echo:
    """A file that returns what csv writes, for streaming."""

    def write(self, text: str) -> str:
        return text


def csv_cell(value: Any) -> str:
    """A cell that no spreadsheet runs as a formula; numbers stay numbers."""
    if value is None:
        return ""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return str(value)


def file_slug(*parts: Any) -> str:
    """A name for a file or folder: small letters, digits and dashes; empty if the parts have none."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, parts)).lower()).strip("-")[:60]
