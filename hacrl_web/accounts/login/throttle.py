"""How often a password may be tried: ten wrong ones from one address for one user name, then a pause."""

from __future__ import annotations

import hashlib
import unicodedata
from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from hacrl_web.accounts.models import LoginTry

MAX_TRIES = 10
WINDOW = timedelta(minutes=15)


def _recent(key: str) -> QuerySet[LoginTry]:
    return LoginTry.objects.filter(key=key, at__gt=timezone.now() - WINDOW)


def throttle_key(username: str, address: str) -> str:
    """The same for every spelling of a user name that a person would take for the same."""
    folded = unicodedata.normalize("NFKC", username).strip().casefold()
    return hashlib.sha256(f"{folded}\n{address}".encode("utf-8", "replace")).hexdigest()


def may_try(key: str) -> bool:
    """Count a try. It is noted before the password is looked at: tries at the same time do not slip through."""
    if _recent(key).count() >= MAX_TRIES:
        return False
    LoginTry.objects.filter(at__lt=timezone.now() - WINDOW).delete()
    LoginTry.objects.create(key=key)
    return _recent(key).count() <= MAX_TRIES


def forget(key: str) -> None:
    """The password was right."""
    LoginTry.objects.filter(key=key).delete()
