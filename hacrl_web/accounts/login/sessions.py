"""Ends the sessions of a user, with what is open in them, and notes logins and logouts in the audit log.

Django's session table has no column for the user, so each session is decoded to read it. An installation has hundreds
of sessions, not millions.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.contrib.sessions.models import Session
from django.dispatch import Signal, receiver
from django.utils import timezone

from hacrl_web.accounts.audit import audit_log
from hacrl_web.accounts.models import User

# Sent with `session_key` when a session is ended from elsewhere: its open connections must be closed.
session_ended = Signal()


def session_digest(session_key: str) -> str:
    """A name for a session that does not reveal its key."""
    return hashlib.sha256(session_key.encode()).hexdigest()


def end_sessions(user: User, *, but: str | None = None) -> None:
    """End the user's sessions and their open connections. but: key of one to keep."""
    ended = 0
    for session in Session.objects.filter(expire_date__gt=timezone.now()).exclude(session_key=but):
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            key = session.session_key  # which a deleted row no longer has
            session.delete()
            session_ended.send(User, session_key=key)
            ended += 1
    if ended:
        audit_log.note_change("logged out", user, sessions=ended)


@receiver(user_logged_in)
def _note_login(sender: Any, user: User, **_: Any) -> None:
    Session.objects.filter(expire_date__lt=timezone.now()).delete()  # which Django leaves to a command
    audit_log.note_change("logged in", user)


@receiver(user_logged_out)
def _note_logout(sender: Any, user: User | None, **_: Any) -> None:
    if user is not None:
        audit_log.note_change("logged out", user, sessions=1)
