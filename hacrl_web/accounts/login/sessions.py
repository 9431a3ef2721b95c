"""Where somebody is logged in, and the end of it: one session, all but this one, or all of a user's.

Read from Django's session table, which knows no users: each session is opened to see whose it is. A lab has hundreds
of them, not millions.
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

from hacrl_web.accounts import audit_log
from hacrl_web.accounts.models import User

LOGGED_IN = "signed_in"  # in a session: when, from which address, with which browser
# Sent with `session_key` when somebody's session is ended from elsewhere: what it holds open must be closed.
session_ended = Signal()


@dataclass(frozen=True)
class LoggedIn:
    """One session as its user may see it: not its key, which would let others in."""

    name: str  # stands for the key
    at: datetime | None
    address: str
    browser: str  # in words
    user_agent: str  # as the browser named itself, which may be anything
    expires_at: datetime
    is_this: bool


def session_digest(session_key: str) -> str:
    """What names a session where its key must not be seen."""
    return hashlib.sha256(session_key.encode()).hexdigest()


def browser_words(user_agent: str) -> str:
    """Such as "Chrome on Linux"; empty where it is no browser that is known."""
    browser, system = parse_user_agent(user_agent), parse_os(user_agent)
    return " on ".join(part.family for part in (browser, system) if part)


def sessions_of(user: User, this_key: str | None = None) -> list[LoggedIn]:
    """The user's sessions that have not expired, the newest first."""
    sessions = []
    for session, values in _open_sessions(user):
        login = values.get(LOGGED_IN) or {}
        sessions.append(
            LoggedIn(
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
    """End the user's sessions and what they hold open. only: the name of one; but: the key of one that goes on."""
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
def _remember(sender: Any, request: HttpRequest, user: User, **_: Any) -> None:
    request.session[LOGGED_IN] = {
        "at": timezone.now().isoformat(timespec="seconds"),
        "address": request.META.get("REMOTE_ADDR", ""),
        "browser": request.META.get("HTTP_USER_AGENT", "")[:200],
    }
    audit_log.note_change("logged in", user)


@receiver(user_logged_out)
def _note_end(sender: Any, user: User | None, **_: Any) -> None:
    if user is not None:
        audit_log.note_change("logged out", user, sessions=1)
