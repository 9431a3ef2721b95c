"""What the settings may not be together: refused by every process of ours before it serves, with the cure.

Django's system checks: `manage.py check` names them all, `check --deploy` also what only matters beyond this machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops.preflight import is_loopback

LEAST_KEY = 50  # characters of a signing key
LEAST_DIFFERENT = 5
# Where SQLite's locks do not hold, or hold for one machine only.
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "ceph", "lustre", "gpfs", "beegfs", "afs"}
NETWORK |= {"glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "fuse.s3fs", "fuse.juicefs"}


def is_public() -> bool:
    """True where browsers of other machines are expected."""
    return any(not is_loopback(host.strip("[]")) for host in settings.ALLOWED_HOSTS)


def filesystem(path: Path) -> str:
    """The kind of file system that a path lies on, empty where the system does not tell."""
    path = path.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else ""


def _debug() -> str:
    if settings.DEBUG and is_public():
        return "HACRL_DEBUG=1 shows secrets on error pages, and browsers of other machines are allowed: unset it."
    return ""


def _key() -> str:
    return _weak_key() if is_public() else ""


def _listens_to_all() -> str:
    """A container hears every machine that reaches its port, and who asks may call it localhost."""
    if is_public():
        return ""  # the other rules say so
    return "HACRL_DEBUG=1 shows secrets on error pages: unset it." if settings.DEBUG else _weak_key()


def _weak_key() -> str:
    key = settings.SECRET_KEY
    if len(key) < LEAST_KEY or len(set(key)) < LEAST_DIFFERENT:
        return (
            f"The secret key is too weak: unset HACRL_SECRET_KEY (one is made), or give {LEAST_KEY} random characters."
        )
    return ""


def _key_file() -> str:
    path = Path(settings.DATA_DIR) / "secret_key"
    is_ours = settings.SECRET_KEY_NAME not in os.environ and f"{settings.SECRET_KEY_NAME}_FILE" not in os.environ
    if is_public() and is_ours and path.exists() and path.stat().st_mode & 0o077:
        return f"Others on this machine can read {path}, which signs sessions: chmod 600 {path}"
    return ""


def _any_host() -> str:
    if "*" in settings.ALLOWED_HOSTS or "." in settings.ALLOWED_HOSTS:
        return "HACRL_ALLOWED_HOSTS=* lets any site name itself in links of ours: list the names of this one."
    return ""


def _sqlite_on_network() -> str:
    database = settings.DATABASES["default"]
    if "sqlite" not in database["ENGINE"]:
        return ""
    kind = filesystem(Path(database["NAME"]).parent)
    if kind in NETWORK:
        return (
            f"The SQLite database {database['NAME']} lies on a network folder ({kind}), where its locks do not hold: "
            "move HACRL_DATA to a local disk, or set DATABASE_URL to PostgreSQL."
        )
    return ""


def _sqlite_and_hosts() -> str:
    if "sqlite" in settings.DATABASES["default"]["ENGINE"] and _is_remote(settings.REDIS_URL):
        return (
            "REDIS_URL is on another host, so workers elsewhere are meant, and they cannot reach an SQLite file: set "
            "DATABASE_URL to PostgreSQL, or unset REDIS_URL."
        )
    return ""


def _redis_password() -> str:
    if _is_remote(settings.REDIS_URL) and not urlsplit(settings.REDIS_URL).password:
        return (
            "Redis on another host without a password takes orders from anybody who reaches it: set requirepass there, "
            "and REDIS_PASSWORD_FILE or redis://:password@host here."
        )
    return ""


def _tls_proxy() -> str:
    if settings.PUBLIC_URL.startswith("https:") and settings.SECURE_PROXY_SSL_HEADER is None:
        return (
            "HACRL_PUBLIC_URL is https, and nothing says that a proxy ends TLS, so cookies would travel unencrypted: "
            "let the proxy set X-Forwarded-Proto, and set HACRL_TLS_PROXY=1."
        )
    return ""


def _cookies() -> str:
    if settings.SECURE_PROXY_SSL_HEADER and not (settings.SESSION_COOKIE_SECURE and settings.CSRF_COOKIE_SECURE):
        return (
            "HACRL_TLS_PROXY=1, and cookies would be sent without TLS too: SESSION_ and CSRF_COOKIE_SECURE are needed."
        )
    return ""


def _plain_http() -> str:
    if is_public() and settings.SECURE_PROXY_SSL_HEADER is None and os.environ.get("HACRL_PLAIN_HTTP") != "1":
        return (
            "Other machines may ask by HACRL_ALLOWED_HOSTS, and without TLS everybody on the way reads passwords and "
            "sessions: put a TLS proxy in front and set HACRL_TLS_PROXY=1 (docs/deploy.md), or say HACRL_PLAIN_HTTP=1."
        )
    return ""


def _is_remote(url: str) -> bool:
    host = urlsplit(url).hostname
    return urlsplit(url).scheme != "unix" and bool(host) and not is_loopback(host or "")


ALWAYS: dict[str, Callable[[], str]] = {
    "hacrl.E001": _debug,
    "hacrl.E002": _key,
    "hacrl.E003": _any_host,
    "hacrl.E004": _sqlite_on_network,
    "hacrl.E005": _sqlite_and_hosts,
    "hacrl.E006": _redis_password,
    "hacrl.E007": _tls_proxy,
    "hacrl.E008": _cookies,
    "hacrl.E009": _key_file,
}
DEPLOYED: dict[str, Callable[[], str]] = {"hacrl.E010": _plain_http, "hacrl.E011": _listens_to_all}


def _messages(rules: dict[str, Callable[[], str]]) -> list[CheckMessage]:
    outcomes = ((code, rule()) for code, rule in rules.items())
    return [Error(text, id=code) for code, text in outcomes if text]


@register(Tags.security)
def safe_settings(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    return _messages(ALWAYS)


@register(Tags.security, deploy=True)
def safe_deployment(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    return _messages(DEPLOYED)


def refuse_unsafe_settings() -> None:
    """For a process that no command of Django's starts. Error: ImproperlyConfigured."""
    messages = safe_settings()
    if messages:
        raise ImproperlyConfigured(" ".join(str(message.msg) for message in messages))
