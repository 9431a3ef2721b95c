"""A long text that is sent line by line as it is read from the database, and never held as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

LINES_AT_ONCE = 500


async def _served_async(lines: Iterator[str]) -> AsyncIterator[str]:
    """The lines of a generator that reads the database, for a server that takes only asynchronous ones."""
    while chunk := await sync_to_async(lambda: "".join(islice(lines, LINES_AT_ONCE)))():
        yield chunk


def download(request: HttpRequest, lines: Iterator[str], name: str, kind: str) -> StreamingHttpResponse:
    """A file to save. kind: its media type, of text."""
    content = _served_async(lines) if isinstance(request, ASGIRequest) else lines
    response = StreamingHttpResponse(content, content_type=f"{kind}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
