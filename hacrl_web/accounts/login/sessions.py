"""Lists and ends the sessions of a user.

Django's session table has no column for the user, so each session is decoded to read it. An installation has hundreds
of sessions, not millions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.contrib.sessions.models import Session
from django.dispatch import Signal, receiver
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from ua_parser import parse_os, parse_user_agent

from hacrl_web.accounts.audit import audit_log
from hacrl_web.accounts.models import User

LOGIN_DETAILS = "signed_in"  # key in a session: time, address and browser of the login
# Sent with `session_key` when a session is ended from elsewhere: its open connections must be closed.
session_ended = Signal()


@dataclass(frozen=True)
class UserSession:
    """A session as its user may see it: without its key, which would let others in."""

    name: str  # digest of the key
    at: datetime | None
    address: str
    browser: str  # such as "Chrome on Linux"
    user_agent: str  # sent by the browser; may be any text
    expires_at: datetime
    is_this: bool


def session_digest(session_key: str) -> str:
    """A name for a session that does not reveal its key."""
    return hashlib.sha256(session_key.encode()).hexdigest()


def browser_words(user_agent: str) -> str:
    """Such as "Chrome on Linux"; empty for an unknown browser."""
    browser, system = parse_user_agent(user_agent), parse_os(user_agent)
    return " on ".join(part.family for part in (browser, system) if part)


def sessions_of(user: User, this_key: str | None = None) -> list[UserSession]:
    """The user's sessions that have not expired: the one of `this_key` first, then by expiry, latest first."""
    sessions = []
    for session, values in _open_sessions(user):
        login = values.get(LOGIN_DETAILS) or {}
        sessions.append(
            UserSession(
                name=session_digest(session.session_key),
                at=parse_datetime(str(login.get("at", ""))),
                address=str(login.get("address", "")),
                browser=browser_words(user_agent := str(login.get("browser", ""))),
                user_agent=user_agent,
                expires_at=session.expire_date,
                is_this=session.session_key == this_key,
            )
        )
    return sorted(sessions, key=lambda one: (one.is_this, one.expires_at), reverse=True)


def end_sessions(user: User, *, only: str | None = None, but: str | None = None) -> int:
    """End the user's sessions and their open connections; returns how many.

    only: name of the one to end.  but: key of one to keep.
    """
    ended = 0
    for session, _ in _open_sessions(user):
        key = session.session_key
        if key == but or only not in (None, session_digest(key)):
            continue
        session.delete()
        session_ended.send(User, session_key=key)
        ended += 1
    if ended:
        audit_log.note_change("logged out", user, sessions=ended)
    return ended


def _open_sessions(user: User) -> Iterator[tuple[Session, dict[str, Any]]]:
    for session in Session.objects.filter(expire_date__gt=timezone.now()):
        values = session.get_decoded()
        if values.get(SESSION_KEY) == str(user.pk):
            yield session, values


@receiver(user_logged_in)
def _note_login(sender: Any, request: HttpRequest, user: User, **_: Any) -> None:
    Session.objects.filter(expire_date__lt=timezone.now()).delete()  # which Django leaves to a command
    request.session[LOGIN_DETAILS] = {
        "at": timezone.now().isoformat(timespec="seconds"),
        "address": request.META.get("REMOTE_ADDR", ""),
        "browser": request.META.get("HTTP_USER_AGENT", "")[:200],
    }
    audit_log.note_change("logged in", user)


@receiver(user_logged_out)
def _note_logout(sender: Any, user: User | None, **_: Any) -> None:
    if user is not None:
        audit_log.note_change("logged out", user, sessions=1)
