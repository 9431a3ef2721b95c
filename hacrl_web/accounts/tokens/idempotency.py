"""Idempotency-Key: a launch that is sent again, because its answer was lost, happens once."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import resolve
from django.utils import timezone
from ninja import Status
from ninja.responses import NinjaJSONEncoder

from hacrl_web.accounts.models import LaunchKey, User
from hacrl_web.accounts.roles.visibility import rows_at
from hacrl_web.web.errors import FieldErrors

HEADER = "Idempotency-Key"
LIFETIME = timedelta(days=1)
MAX_KEY = 200
Launch = Callable[..., Any]


def idempotent(launch: Launch) -> Launch:
    """Decorator of an operation that launches: it runs once for each key of a user. Without the header: each time.

    The same key with the same body gets the stored answer, or 404 if the user may no longer see the launched
    object; with another body 409. A refusal is not stored, so a corrected request may use its key again.
    """

    @wraps(launch)
    def once(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        key = request.headers.get(HEADER)
        if key is None:
            return launch(request, *args, **kwargs)
        if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
            raise FieldErrors.single("invalid", f"{HEADER}: 1 to {MAX_KEY} printable ASCII characters are needed.")
        digest = _hash(request)
        try:
            return _first(request, key, digest, lambda: launch(request, *args, **kwargs))
        except IntegrityError:
            earlier = LaunchKey.objects.filter(owner=request.user, key=key).first()
            if earlier is None:  # another constraint failed
                raise
        if earlier.request_hash != digest:
            message = f"This {HEADER} was used for another request. Choose a new one for each launch."
            raise FieldErrors.single("key_reused", message, status=409)
        _check_visible(request.user, json.loads(earlier.answer))
        return _response(earlier.answer, earlier.status, is_replayed=True)

    # ninja reads the signature, and would resolve the names of types in this module.
    once.__signature__ = inspect.signature(launch, eval_str=True)  # type: ignore[attr-defined]
    return once


def _first(request: HttpRequest, key: str, digest: str, act: Callable[[], Status[Any]]) -> HttpResponse:
    """Store key, launch and answer in one transaction: of two simultaneous requests, the second waits for the first.

    Error: IntegrityError if the key exists.
    """
    with transaction.atomic():
        LaunchKey.objects.filter(created_at__lt=timezone.now() - LIFETIME).delete()
        row = LaunchKey.objects.create(owner=request.user, key=key, request_hash=digest)
        answer = act()
        row.status, row.answer = answer.status_code, json.dumps(answer.value, cls=NinjaJSONEncoder)
        row.save(update_fields=["status", "answer"])
    return _response(row.answer, row.status)


def _check_visible(user: User, answer: dict[str, Any]) -> None:
    """Error: FieldErrors (404) if the user no longer sees the launched object (`url` of the answer)."""
    rows = rows_at(resolve(answer["url"]), user)
    if rows is not None and not rows.exists():
        message = f"What this {HEADER} launched was deleted, or you are no longer in its project."
        raise FieldErrors.single("not_found", message, status=404)


def _hash(request: HttpRequest) -> str:
    """SHA-256 of address and body; spacing and key order of the JSON do not matter."""
    try:
        body = json.dumps(json.loads(request.body), sort_keys=True).encode()
    except (ValueError, RecursionError):
        body = request.body
    return hashlib.sha256(request.path.encode() + b"\0" + body).hexdigest()


def _response(answer: str, status: int, *, is_replayed: bool = False) -> HttpResponse:
    response = HttpResponse(answer, status=status, content_type="application/json; charset=utf-8")
    if is_replayed:
        response["Idempotency-Replayed"] = "true"
    return response
