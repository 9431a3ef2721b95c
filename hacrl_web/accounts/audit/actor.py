"""The actor of a change: a user of a page, a program at the API, or a user at the command line.

A context variable, so that audit_log.py can read it without a parameter in every function. Workers and dispatchers
have no actor, as a run's events record what they do; retention has one, as it deletes those.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from hacrl_web.web.errors import API_PREFIX

# Commands without an actor.
MACHINES = frozenset({"dispatch", "watch", "runserver", "migrate"})


@dataclass(frozen=True)
class Actor:
    """via: page, api, command or upkeep.  request: None at the command line."""

    via: str
    request: HttpRequest | None = None
    command: str = ""

    @property
    def user(self) -> Any:
        """The user who is logged in at this moment (a login changes it); None for a visitor and a command."""
        user = getattr(self.request, "user", None)
        return user if user is not None and user.is_authenticated else None

    @property
    def name(self) -> str:
        if self.request is not None:
            return str(self.user.get_username()) if self.user else "a visitor"
        if self.via == "upkeep":
            return self.command
        try:
            return f"{getpass.getuser()}: {self.command}"
        except (KeyError, OSError):  # in a container, a user without a name
            return f"somebody: {self.command}"

    @property
    def address(self) -> str:
        return str(self.request.META.get("REMOTE_ADDR") or "") if self.request is not None else ""


_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)


def current_actor() -> Actor | None:
    return _actor.get()


@contextmanager
def acting(actor: Actor | None) -> Iterator[None]:
    """Attribute the changes within this context to an actor."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def of_request(request: HttpRequest) -> Actor:
    return Actor("api" if request.path_info.startswith(API_PREFIX) else "page", request)


def of_command(arguments: list[str]) -> Actor | None:
    """The actor of a command line; None for MACHINES."""
    command = arguments[0] if arguments else ""
    return None if not command or command in MACHINES else Actor("command", command=f"./hacrl {command}")
