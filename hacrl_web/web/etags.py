"""Edits of the API: who changes something says which version it saw, so that no one's change is lost to another's."""

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

from hacrl_web.web.errors import FieldError, FieldErrors


def etag_of(body: Any) -> str:
    """The version of what the API shows of an object."""
    text = json.dumps(body, cls=DjangoJSONEncoder, sort_keys=True)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def tagged(request: HttpRequest, body: Any) -> HttpResponse:
    """The body with its ETag, or 304 where the caller has it already (If-None-Match)."""
    tag = etag_of(body)
    response = HttpResponse(json.dumps(body, cls=DjangoJSONEncoder), content_type="application/json; charset=utf-8")
    if tag in _tags(request, "If-None-Match"):
        response = HttpResponse(status=304)
    response["ETag"] = tag
    return response


@contextmanager
def edit_of(kind: type[Model], pk: Any) -> Iterator[None]:
    """Hold a row, there or not, while a version is checked and the next one written.

    Of two who send the version that both have read, the second is told 412, and not taken for the first.
    """
    with transaction.atomic():
        kind._base_manager.select_for_update().filter(pk=pk).values_list("pk").first()
        yield


def check_version(request: HttpRequest, current: Any) -> None:
    """Error: FieldErrors, 428 where If-Match is missing, 412 where it names another version than the current one."""
    tags = _tags(request, "If-Match")
    if not tags:
        message = "Say which version you change: send its ETag as If-Match."
        raise FieldErrors([FieldError("version_needed", message, None)], 428)
    if etag_of(current) not in tags:
        message = "It has been changed since you read it. Read it again, and send the new ETag as If-Match."
        raise FieldErrors([FieldError("changed_meanwhile", message, None)], 412)


def _tags(request: HttpRequest, header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in request.headers.get(header, "").split(",") if tag.strip()}
