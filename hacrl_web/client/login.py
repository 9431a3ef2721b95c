"""Address and token of the command's installation: HACRL_URL and HACRL_TOKEN, or the file of `hacrl login`."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hacrl_web.client.show import HACRL


class NotLoggedIn(Exception):
    """The address or the token is missing; the text says what to do."""


@dataclass(frozen=True)
class StoredLogin:
    """An installation and a token for it."""

    url: str
    token: str


def login_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "hacrl" / "login.json"


def save_login(login: StoredLogin) -> Path:
    """Write the file, readable by its owner only and never in part. Error: OSError."""
    path = login_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        json.dump({"url": login.url, "token": login.token}, file)
    temporary.replace(path)
    return path


def forget_login() -> bool:
    """Delete the file; whether it existed."""
    path = login_file()
    existed = path.exists()
    path.unlink(missing_ok=True)
    return existed


def find_login() -> StoredLogin:
    """The environment takes precedence over the file. Error: NotLoggedIn."""
    url, token = os.environ.get("HACRL_URL", ""), os.environ.get("HACRL_TOKEN", "")
    if not (url and token):
        content = _stored()
        # A stored token is sent only to its own address.
        if not url or url.rstrip("/") == content.url:
            url, token = url or content.url, token or content.token
    if not url or not token:
        raise NotLoggedIn(f"Not logged in: {HACRL} login URL, or set HACRL_URL and HACRL_TOKEN.")
    return StoredLogin(url.rstrip("/"), token)


def _stored() -> StoredLogin:
    """The login of the file; empty where it cannot be read. Error: NotLoggedIn where other users can read it."""
    path = login_file()
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise NotLoggedIn(f"Other users can read {path}: chmod 600 it, or log in again.")
        content = json.loads(path.read_text())
        return StoredLogin(str(content["url"]), str(content["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return StoredLogin("", "")
