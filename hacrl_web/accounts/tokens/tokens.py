"""API tokens: how their text is made and checked, who may do what with one, and whom it stands for.

`hacrl_`, 32 random characters (190 bits), 6 of a checksum. The prefix lets scanners find a leaked one; the checksum
refuses a mistyped one without a look at the database. A stored token is found by the SHA-256 of its text, so how long
that takes tells nothing of the tokens that there are, nor of their owners.
"""

from __future__ import annotations

import hmac
import secrets
import string
import zlib
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db import Error, IntegrityError, transaction
from django.utils import timezone

from hacrl_web.accounts.models import hash_token
from hacrl_web.accounts.token_models import ApiToken
from hacrl_web.web.errors import FieldError, FieldErrors

PREFIX = "hacrl_"
SCOPES = {
    "read": "Look at everything that you may see",
    "write": "Launch, stop, change and delete in your name",
}
READING = ("GET", "HEAD", "OPTIONS")
LIFETIMES_DAYS = (7, 30, 90, 365)
USUAL_DAYS = 30
MAX_DAYS = 366
MAX_TOKENS = 50
MAX_NAME = 80
KEPT_AFTER_END = timedelta(days=30)
_ALPHABET = string.ascii_letters + string.digits
_RANDOM, _CHECK, _HINT = 32, 6, 10


def _checksum(text: str) -> str:
    """CRC-32 in six characters of the alphabet."""
    number, letters = zlib.crc32(text.encode()), ""
    for _ in range(_CHECK):
        number, place = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[place]
    return letters


def new_text() -> str:
    body = PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return body + _checksum(body)


def is_well_formed(text: str) -> bool:
    body, check = text[:-_CHECK], text[-_CHECK:]
    if not text.isascii() or not text.startswith(PREFIX) or len(text) != len(PREFIX) + _RANDOM + _CHECK:
        return False
    return hmac.compare_digest(_checksum(body), check)


def make_token(owner: Any, *, name: str, scopes: list[str], days: int) -> tuple[ApiToken, str]:
    """A new token and its text, which is nowhere else from now on. Error: FieldErrors; then nothing is written."""
    name = name.replace("\x00", "").strip()
    errors = _problems(name, scopes, days)
    mine = ApiToken.objects.filter(owner=owner)
    if mine.filter(revoked_at=None).count() >= MAX_TOKENS:
        errors.append(FieldError("too_many", f"You have {MAX_TOKENS} tokens: revoke one first.", None))
    if errors:
        raise FieldErrors(errors)
    now, text = timezone.now(), new_text()
    own_scopes = [scope for scope in SCOPES if scope in scopes]
    try:
        with transaction.atomic():
            for ended in ("revoked_at", "expires_at"):
                mine.filter(**{f"{ended}__lt": now - KEPT_AFTER_END}).delete()
            token = ApiToken.objects.create(
                owner=owner,
                name=name,
                hint=text[:_HINT],
                token_hash=hash_token(text),
                scopes=own_scopes,
                expires_at=now + timedelta(days=days),
            )
    except IntegrityError:
        message = f"You have a token named “{name}” already: revoke it, or choose another name."
        raise FieldErrors([FieldError("taken", message, "name")]) from None
    return token, text


def _problems(name: str, scopes: list[str], days: int) -> list[FieldError]:
    errors = []
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        errors.append(FieldError("invalid", f"Give it a name of 1 to {MAX_NAME} printable characters.", "name"))
    if not scopes or not set(scopes) <= set(SCOPES):
        errors.append(FieldError("invalid", f"Choose at least one of: {', '.join(SCOPES)}.", "scopes"))
    if not 1 <= days <= MAX_DAYS:
        errors.append(FieldError("invalid", f"Choose 1 to {MAX_DAYS} days.", "days"))
    return errors


def _refused(code: str, message: str, status: int = 401) -> FieldErrors:
    return FieldErrors([FieldError(code, message, None)], status)


def bearer(header: str) -> str | None:
    """The token in an Authorization header; None where it holds another kind of login, or nothing."""
    scheme, _, text = header.partition(" ")
    return text if scheme.lower() == "bearer" else None


def find_token(text: str) -> ApiToken:
    """The token of this text. Error: FieldErrors (401), which says more only to whoever holds a true one."""
    if not is_well_formed(text):
        raise _refused("token_malformed", "This is no API token: it is incomplete or mistyped.")
    digest = hash_token(text)
    token = ApiToken.objects.filter(token_hash=digest).select_related("owner").first()
    if token is None or not hmac.compare_digest(token.token_hash, digest) or not token.owner.is_active:
        raise _refused("token_unknown", "This API token is not known here.")
    if token.state != "usable":
        raise _refused(f"token_{token.state}", f"This API token has been {token.state}. Make a new one on your page.")
    with suppress(Error):  # a busy database must not keep a reader out
        token.note_use()
    return token


def check_scope(token: ApiToken, method: str) -> None:
    """Error: FieldErrors (403) where the token may not use this verb."""
    needed = "read" if method in READING else "write"
    if needed not in token.scopes:
        message = f"This API token may not {needed}: its scope is {', '.join(token.scopes)}."
        raise _refused("scope_missing", message, 403)
