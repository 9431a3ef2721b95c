"""Idempotency-Key: a launch that is asked for twice, because its first answer was lost, is launched once."""

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

from hacrl_web.accounts.token_models import LaunchKey
from hacrl_web.accounts.visibility import rows_at
from hacrl_web.web.errors import FieldError, FieldErrors

HEADER = "Idempotency-Key"
KEPT = timedelta(days=1)
MAX_KEY = 200
Launch = Callable[..., Any]


def idempotent(launch: Launch) -> Launch:
    """An operation that launches something, once for each key of a user's. Without the header: as often as asked.

    The same key with the same body gets the answer that was given, as long as the user may see what was launched
    (else 404); with another body 409. What was refused is not kept: a corrected request may use its key again.
    """

    @wraps(launch)
    def once(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        key = request.headers.get(HEADER)
        if key is None:
            return launch(request, *args, **kwargs)
        _check(key)
        digest = _hash(request)
        try:
            return _first(request, key, digest, lambda: launch(request, *args, **kwargs))
        except IntegrityError:
            earlier = LaunchKey.objects.filter(owner=_user(request), key=key).first()
            if earlier is None:  # the conflict was another one
                raise
        if earlier.request_hash != digest:
            message = f"This {HEADER} was used for another request. Choose a new one for each launch."
            raise FieldErrors([FieldError("key_reused", message, None)], 409)
        _check_visible(_user(request), json.loads(earlier.answer))
        return _response(earlier.answer, earlier.status, is_replayed=True)

    # ninja reads the parameters, and would look for the names of their types in this module.
    once.__signature__ = inspect.signature(launch, eval_str=True)  # type: ignore[attr-defined]
    return once


def _first(request: HttpRequest, key: str, digest: str, act: Callable[[], Status[Any]]) -> HttpResponse:
    """Key, launch and answer in one transaction: of two at the same time one waits, and finds the other's answer.

    Error: IntegrityError where the key is there already.
    """
    with transaction.atomic():
        LaunchKey.objects.filter(created_at__lt=timezone.now() - KEPT).delete()
        row = LaunchKey.objects.create(owner=_user(request), key=key, request_hash=digest)
        answer = act()
        row.status, row.answer = answer.status_code, json.dumps(answer.value, cls=NinjaJSONEncoder)
        row.save(update_fields=["status", "answer"])
    return _response(row.answer, row.status)


def _user(request: HttpRequest) -> Any:
    return request.user


def _check(key: str) -> None:
    if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        message = f"{HEADER}: 1 to {MAX_KEY} printable ASCII characters are needed."
        raise FieldErrors([FieldError("invalid", message, None)])


def _check_visible(user: Any, answer: dict[str, Any]) -> None:
    """Error: FieldErrors (404) where the launched object, by the `url` of the answer, is gone from the user's sight."""
    rows = rows_at(resolve(answer["url"]), user)
    if rows is not None and not rows.exists():
        message = f"What was launched with this {HEADER} has been deleted, or you are in its project no more."
        raise FieldErrors([FieldError("not_found", message, None)], 404)


def _hash(request: HttpRequest) -> str:
    """Of address and body; how the JSON is spaced and ordered does not count."""
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
