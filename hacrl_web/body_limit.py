"""Ends a request that is too large while it still comes in: Django under ASGI would first write all of it to disk."""

from __future__ import annotations

import json
from typing import Any

from hacrl_web.errors import FieldError
from hacrl_web.registry.uploads import MAX_UPLOAD_BYTES

MAX_BYTES = 6 * 2**20
# Two question files and the fields around them.
MAX_UPLOAD_REQUEST_BYTES = 2 * MAX_UPLOAD_BYTES + 2**20
UPLOAD_PATHS = ("/benchmarks/new", "/api/v1/benchmarks")


class LimitBody:
    """An ASGI application around another: 413 for bodies over the limit of their address."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        most = MAX_UPLOAD_REQUEST_BYTES if scope["path"] in UPLOAD_PATHS else MAX_BYTES
        if _announced(scope) > most:
            await _refuse(scope, send, most)
            return
        received = 0
        is_answered = False

        async def counted_receive() -> dict[str, Any]:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            # To Django a client that went away: it drops what it has and says nothing.
            return {"type": "http.disconnect"} if received > most else message

        async def noted_send(message: dict[str, Any]) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        await self.application(scope, counted_receive, noted_send)
        if received > most and not is_answered:
            await _refuse(scope, send, most)


def _announced(scope: dict[str, Any]) -> int:
    """The content length that the client gave, 0 where it gave none."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


async def _refuse(scope: dict[str, Any], send: Any, most: int) -> None:
    message = f"The request is too large: at most {most // 2**20} MiB are allowed here."
    if scope["path"].startswith("/api/"):
        error = FieldError("too_large", message, None).as_dict()
        body, kind = json.dumps({"error": error, "errors": [error]}).encode(), b"application/json"
    else:
        body, kind = message.encode(), b"text/plain; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
