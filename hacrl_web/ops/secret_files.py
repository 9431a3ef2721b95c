"""Reads secrets from the environment, or from a file named by NAME_FILE, as in containers.

Standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

MOST_BYTES = 64 * 1024


class BadSecret(Exception):
    """A secret cannot be read; the text names it and what to do, without its value."""


def secret(name: str) -> str:
    """The value of a secret; empty if it is not set. Error: BadSecret."""
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
        raise BadSecret(
            f"{name}_FILE={path} cannot be read ({reason}): check that it exists and that this user may read it."
        ) from None
    if not text:
        raise BadSecret(f"{name}_FILE={path} is empty.")
    return text


def with_password(url: str, password: str) -> str:
    """The URL with a password, unless it has one."""
    parts = urlsplit(url)
    if not password or parts.password or not parts.hostname:
        return url
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user if at else ''}:{quote(password, safe='')}@{host}"))
