"""API tokens: creates them, checks them, and finds their owners.

The text of a token is `hacrl_`, 32 random characters (190 bits) and a checksum of 6. Scanners find leaked tokens by
the prefix; the checksum refuses a mistyped token without a query. A token is looked up by the SHA-256 of its text, so
the time of the lookup reveals nothing about existing tokens or their owners.
"""

from __future__ import annotations

import hmac
import secrets
import string
import zlib
from contextlib import suppress
from datetime import timedelta

from django.db import Error, IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from hacrl_web.accounts.models import ApiToken, User, hash_token
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
KEEP_ENDED = timedelta(days=30)
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


def make_token(owner: User, *, name: str, scopes: list[str], days: int) -> tuple[ApiToken, str]:
    """A new token and its text, which is not stored. Error: FieldErrors."""
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
            mine.filter(Q(revoked_at__lt=now - KEEP_ENDED) | Q(expires_at__lt=now - KEEP_ENDED)).delete()
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
        raise FieldErrors.single("taken", message, "name") from None
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


def bearer(header: str) -> str | None:
    """The token in an Authorization header; None for an empty header and for other schemes."""
    scheme, _, text = header.partition(" ")
    return text if scheme.lower() == "bearer" else None


def find_token(text: str) -> ApiToken:
    """The token of this text. Error: FieldErrors (401); it gives details for an existing token alone."""
    if not is_well_formed(text):
        raise _not_accepted("malformed", "This is not an API token: it is incomplete or mistyped.")
    digest = hash_token(text)
    token = ApiToken.objects.filter(token_hash=digest).select_related("owner").first()
    if token is None or not hmac.compare_digest(token.token_hash, digest) or not token.owner.is_active:
        raise _not_accepted("unknown", "This installation does not know this API token.")
    if token.state == "revoked":
        raise _not_accepted("revoked", "This API token was revoked. Create a new one on the page API tokens.")
    if token.state == "expired":
        raise _not_accepted("expired", "This API token has expired. Create a new one on the page API tokens.")
    with suppress(Error):  # a busy database must not refuse a reader
        token.note_use()
    return token


def _not_accepted(code: str, message: str) -> FieldErrors:
    return FieldErrors.single(f"token_{code}", message, status=401)


def check_scope(token: ApiToken, method: str) -> None:
    """Error: FieldErrors (403) if the token's scopes do not include this method."""
    needed = "read" if method in READING else "write"
    if needed not in token.scopes:
        message = f"This API token may not {needed}: its scope is {', '.join(token.scopes)}."
        raise FieldErrors.single("scope_missing", message, status=403)
