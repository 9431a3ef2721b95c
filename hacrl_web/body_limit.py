"""Refuses a request body that is too large while it is received, and a form whose length is not said.

Django under ASGI would first write the body to disk, and reads no field of a form of unknown length.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import DatabaseError
from django.http import parse_cookie

from hacrl_web.accounts.tokens.service import bearer, check_scope, find_token
from hacrl_web.insight.checkpoints.checkpoints import MAX_BUNDLE_BYTES
from hacrl_web.ops.disk_space import disk_error
from hacrl_web.registry.benchmarks.uploads import MAX_UPLOAD_BYTES
from hacrl_web.web.errors import API_PREFIX, FieldErrors

MAX_BYTES = 6 * 2**20
# Two question files and the other fields of the form.
MAX_UPLOAD_REQUEST_BYTES = 2 * MAX_UPLOAD_BYTES + 2**20
MAX_BUNDLE_REQUEST_BYTES = MAX_BUNDLE_BYTES + 2**20
UPLOAD_PATHS = {
    "/benchmarks/new": MAX_UPLOAD_REQUEST_BYTES,
    "/api/v1/benchmarks": MAX_UPLOAD_REQUEST_BYTES,
    "/runs/import": MAX_BUNDLE_REQUEST_BYTES,
    "/api/v1/bundles": MAX_BUNDLE_REQUEST_BYTES,
}

NO_LENGTH = FieldErrors.single(
    "no_length",
    "This form came without its length (Transfer-Encoding: chunked): send Content-Length, or let the proxy buffer "
    "uploads.",
    status=411,
)

Scope = dict[str, Any]


async def is_logged_in(scope: Scope) -> bool:
    """Whether a request has a session, or an API token with the needed scope. Others cannot upload large bodies."""
    cookies = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
    key = parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME, "")
    authorization = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), "")
    token = bearer(authorization)
    try:
        if token is not None:
            check_scope(await database_sync_to_async(find_token)(token), scope["method"])
            return True
        return key.isalnum() and await database_sync_to_async(SessionStore(key).get)(SESSION_KEY) is not None
    except FieldErrors:
        return False
    except DatabaseError:  # busy: the application answers that
        return True


class LimitBody:
    """ASGI middleware: 413 for a body over the limit, which depends on the address and on the sender."""

    def __init__(self, application: Any, may_upload: Callable[[Scope], Awaitable[bool]] = is_logged_in) -> None:
        self.application = application
        self.may_upload = may_upload

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        is_upload = scope["path"] in UPLOAD_PATHS and scope["method"] == "POST"
        most = UPLOAD_PATHS[scope["path"]] if is_upload and await self.may_upload(scope) else MAX_BYTES
        headers = dict(scope["headers"])
        content_length = headers.get(b"content-length", b"")
        if not content_length and headers.get(b"content-type", b"").lower().startswith(b"multipart/"):
            await _refuse(scope, send, NO_LENGTH)
            return
        if content_length.isdigit() and int(content_length[:20]) > most:
            await _refuse(scope, send, _too_large(most))
            return
        received = 0
        is_answered = False

        async def counted_receive() -> dict[str, Any]:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            # Django takes this for a client that has disconnected: it drops the body and sends no answer.
            return {"type": "http.disconnect"} if received > most else message

        async def noted_send(message: dict[str, Any]) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self.application(scope, counted_receive, noted_send)
        except OSError as error:  # Django keeps large bodies in temporary files before it looks at a request
            full = disk_error(error)
            if full is None or is_answered:
                raise
            await _refuse(scope, send, full)
            return
        if received > most and not is_answered:
            await _refuse(scope, send, _too_large(most))


def _too_large(most: int) -> FieldErrors:
    message = f"The request is too large: at most {most // 2**20} MiB are allowed here."
    return FieldErrors.single("too_large", message, status=413)


async def _refuse(scope: Scope, send: Any, refusal: FieldErrors) -> None:
    if scope["path"].startswith(API_PREFIX):
        body, kind = json.dumps(refusal.as_body()).encode(), b"application/json"
    else:
        body, kind = refusal.text.encode(), b"text/plain; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
