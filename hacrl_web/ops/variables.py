"""Reads environment variables; an invalid one is refused by its name, with its value and what is allowed.

An empty value counts as not set. docs/environment.md describes the variables.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops.secret_files import secret
from workers.contract.allowed_address import Allowed


def read_text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def read_choice(name: str, choices: Sequence[str], default: str) -> str:
    """Error: ImproperlyConfigured, as of all functions below."""
    value = read_text(name, default)
    if value not in choices:
        raise _invalid(name, value, f"give {', '.join(choices[:-1])} or {choices[-1]}")
    return value


def read_switch(name: str, default: bool = False) -> bool:
    return read_choice(name, ("0", "1"), str(int(default))) == "1"


def read_number(name: str, default: int, least: int = 0) -> int:
    value = read_text(name, str(default))
    if not (value.isascii() and value.isdecimal() and len(value) <= 9 and int(value) >= least):
        raise _invalid(name, value, f"give a whole number from {least} to 999999999")
    return int(value)


def read_hosts(name: str, default: str = "") -> list[str]:
    """Hosts, addresses and networks, separated by commas, as of webhooks."""
    entries = [entry.strip() for entry in read_text(name, default).split(",") if entry.strip()]
    for entry in entries:
        try:
            Allowed.parse(entry)
        except ValueError as error:
            raise _invalid(name, read_text(name), str(error)) from None
    return entries


def read_command(name: str) -> list[str] | None:
    """A JSON list of texts; None if it is not set."""
    if not (value := read_text(name)):
        return None
    try:
        words = json.loads(value)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise _invalid(name, value, 'give a JSON list of texts, such as ["python", "-m", "workers"]')
    return words


def read_words(name: str) -> list[str]:
    """Words, split as a shell splits them."""
    try:
        return shlex.split(read_text(name))
    except ValueError as error:
        raise _invalid(name, read_text(name), f"close its quotes ({error})") from None


def refuse_replaced(name: str, replacements: Mapping[str, str]) -> None:
    """Refuse a value that does nothing any more. replacements: by value, what to do instead."""
    if (value := read_text(name)) in replacements:
        raise _invalid(name, value, replacements[value])


def read_mail_server(name: str) -> SplitResult:
    """The parts of its address; empty ones if it is not set. The address is a secret: no error shows it."""
    address = secret(name).strip()
    try:
        parts = urlsplit(address)
        is_usable = bool(parts.hostname) and parts.scheme in ("smtp", "smtp+tls", "smtps") and parts.port != 0
    except ValueError:
        is_usable = False
    if address and not is_usable:
        raise ImproperlyConfigured(f"{name} cannot be read: give smtp://, smtp+tls:// or smtps:// with a host.")
    return urlsplit(address)


def _invalid(name: str, value: str, allowed: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} is {value!r}: {allowed}.")
