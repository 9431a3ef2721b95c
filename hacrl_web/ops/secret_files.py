"""How settings.py reads secrets: from the environment, or from a file that NAME_FILE names, as containers get them.

Standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

MOST_BYTES = 64 * 1024


class BadSecret(Exception):
    """A secret cannot be had; the text says which and what to do, and never what it is."""


def secret(name: str) -> str:
    """The secret of this name, empty where there is none. Error: BadSecret."""
    value, path = os.environ.get(name, ""), os.environ.get(f"{name}_FILE", "")
    if not path:
        return value
    if value:
        raise BadSecret(f"{name} and {name}_FILE are both set: unset one of them.")
    try:
        with Path(path).open("rb") as file:
            text = file.read(MOST_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise BadSecret(f"{name}_FILE={path} cannot be read ({reason}): is it there, and readable for us?") from None
    if not text:
        raise BadSecret(f"{name}_FILE={path} is empty.")
    return text


def with_password(url: str, password: str) -> str:
    """The address with the password put in; an address that has one of its own keeps it."""
    parts = urlsplit(url)
    if not password or parts.password or not parts.hostname:
        return url
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user if at else ''}:{quote(password, safe='')}@{host}"))
