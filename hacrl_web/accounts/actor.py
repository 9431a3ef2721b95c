"""Who is changing something right now: a person at a page, a program at the API, or somebody at the command line.

Kept beside the flow of the program (a context variable), so that the one place that records changes (audit.py) knows
it without every function handing it on. Workers and dispatchers have no actor: what machines do is in the events.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

API_PREFIX = "/api/"
# Commands that run for ever by themselves: what they write, nobody did.
MACHINES = frozenset({"dispatch", "watch", "runserver", "migrate"})


@dataclass(frozen=True)
class Actor:
    """`via` is page, api or command; request: where it came from, None at the command line."""

    via: str
    request: Any = None
    command: str = ""

    @property
    def user(self) -> Any:
        """Who is logged in now, which a login changes within a request; None for a visitor and a command."""
        user = getattr(self.request, "user", None)
        return user if user is not None and user.is_authenticated else None

    @property
    def name(self) -> str:
        if self.request is None:
            return f"{_system_user()}: {self.command}"
        return str(self.user.get_username()) if self.user else "a visitor"

    @property
    def address(self) -> str:
        return str(self.request.META.get("REMOTE_ADDR") or "") if self.request is not None else ""


_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)


def current_actor() -> Actor | None:
    return _actor.get()


@contextmanager
def acting(actor: Actor | None) -> Iterator[None]:
    """What is changed within is this actor's doing."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def of_request(request: Any) -> Actor:
    return Actor("api" if request.path_info.startswith(API_PREFIX) else "page", request)


def of_command(arguments: list[str]) -> Actor | None:
    """arguments: of the command line, the command first. None for the machines."""
    command = arguments[0] if arguments else ""
    return None if not command or command in MACHINES else Actor("command", command=f"./hacrl {command}")


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "somebody"
