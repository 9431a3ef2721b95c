"""Files to save: what may be long is sent as it is read and never held as a whole, by lines or by pieces."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

LINES_AT_ONCE = 500


async def _served_async(lines: Iterator[str]) -> AsyncIterator[str]:
    """The lines of a generator that reads the database, for a server that takes only asynchronous ones."""
    while chunk := await sync_to_async(lambda: "".join(islice(lines, LINES_AT_ONCE)))():
        yield chunk


async def _pieces_async(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await sync_to_async(lambda: next(pieces, None))()) is not None:
        yield piece


def download_pieces(request: HttpRequest, pieces: Iterator[bytes], name: str, kind: str) -> StreamingHttpResponse:
    """A file of bytes to save; `name` is plain ASCII without quotes."""
    content = _pieces_async(pieces) if isinstance(request, ASGIRequest) else pieces
    response = StreamingHttpResponse(content, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def download_text(text: str, name: str, kind: str) -> HttpResponse:
    """A short text to save; `name` is plain ASCII without quotes."""
    response = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def download(request: HttpRequest, lines: Iterator[str], name: str, kind: str) -> StreamingHttpResponse:
    """A file to save. kind: its media type, of text."""
    content = _served_async(lines) if isinstance(request, ASGIRequest) else lines
    response = StreamingHttpResponse(content, content_type=f"{kind}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


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
