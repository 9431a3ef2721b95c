"""Optimistic locking of API edits by ETag: no edit overwrites one that the caller has not seen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from hacrl_web.web.errors import FieldErrors


def etag_of(body: Any) -> str:
    """The version of an object, by its body in the API."""
    text = json.dumps(body, cls=DjangoJSONEncoder, sort_keys=True)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def tagged(request: HttpRequest, body: Any) -> HttpResponse:
    """The body with its ETag, or 304 if the caller has this version (If-None-Match)."""
    tag = etag_of(body)
    response = HttpResponse(json.dumps(body, cls=DjangoJSONEncoder), content_type="application/json; charset=utf-8")
    if tag in _tags(request, "If-None-Match"):
        response = HttpResponse(status=304)
    response["ETag"] = tag
    return response


@contextmanager
def edit_of(kind: type[Model], pk: Any) -> Iterator[None]:
    """Lock a row, if it exists, while its version is checked and the next one is written.

    Of two edits of the same version the second gets 412.
    """
    with transaction.atomic():
        kind._base_manager.select_for_update().filter(pk=pk).values_list("pk").first()
        yield


def check_version(request: HttpRequest, current: Any) -> None:
    """Error: FieldErrors, 428 without If-Match, 412 if it names another version than the current one."""
    tags = _tags(request, "If-Match")
    if not tags:
        message = "Name the version that you change: send its ETag as If-Match."
        raise FieldErrors.single("version_needed", message, status=428)
    if etag_of(current) not in tags:
        message = "It was changed after you read it. Read it again, and send the new ETag as If-Match."
        raise FieldErrors.single("changed_meanwhile", message, status=412)


def _tags(request: HttpRequest, header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in request.headers.get(header, "").split(",") if tag.strip()}
