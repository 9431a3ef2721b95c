"""Refuses unsafe combinations of settings before a process serves, and says how to fix them.

These are system checks of Django: `manage.py check` runs them; `check --deploy` adds those for deployments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops.preflight import MIN_KEY, is_loopback, is_weak_key

SHOWS_SECRETS = "shows secrets on error pages"
WEAK_KEY = f"The secret key is weak: unset HACRL_SECRET_KEY (one is generated), or give {MIN_KEY} random characters."
# File systems on which SQLite's locks do not work, or only within one machine.
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "ceph", "lustre", "gpfs", "beegfs", "afs"}
NETWORK |= {"glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "fuse.s3fs", "fuse.juicefs"}


def is_public() -> bool:
    """Whether browsers of other machines are allowed."""
    return any(not is_loopback(host.strip("[]")) for host in settings.ALLOWED_HOSTS)


def filesystem(path: Path) -> str:
    """The type of the file system of a path; empty if it is unknown."""
    path = path.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else ""


def _unsafe_web() -> Iterator[tuple[str, str]]:
    """Code and text of each problem."""
    if not is_public():
        return
    if settings.DEBUG:
        yield "E001", f"HACRL_DEBUG=1 {SHOWS_SECRETS}, and other machines may open them: unset it."
    if is_weak_key(settings.SECRET_KEY):
        yield "E002", WEAK_KEY
    if "*" in settings.ALLOWED_HOSTS or "." in settings.ALLOWED_HOSTS:
        yield "E003", "HACRL_ALLOWED_HOSTS=* lets any host name appear in our links: list the names of this site."
    path = Path(settings.DATA_DIR) / "secret_key"
    is_ours = settings.SECRET_KEY_NAME not in os.environ and f"{settings.SECRET_KEY_NAME}_FILE" not in os.environ
    if is_ours and path.exists() and path.stat().st_mode & 0o077:
        yield "E009", f"Other users of this machine can read {path}, which signs sessions: chmod 600 {path}"


def _unsafe_storage() -> Iterator[tuple[str, str]]:
    database = settings.DATABASES["default"]
    is_sqlite, is_remote = "sqlite" in database["ENGINE"], _is_remote(settings.REDIS_URL)
    if is_sqlite and (kind := filesystem(Path(database["NAME"]).parent)) in NETWORK:
        yield (
            "E004",
            f"The SQLite database {database['NAME']} is in a network folder ({kind}), where its locks do not work: "
            "move HACRL_DATA to a local disk, or set DATABASE_URL to PostgreSQL.",
        )
    if is_sqlite and is_remote:
        yield (
            "E005",
            "REDIS_URL is on another host, but workers on other hosts cannot use an SQLite file: "
            "set DATABASE_URL to PostgreSQL, or unset REDIS_URL.",
        )
    if is_remote and not urlsplit(settings.REDIS_URL).password:
        yield (
            "E006",
            "Redis on another host has no password, so anybody who reaches it can give orders to workers: set "
            "requirepass there, and REDIS_PASSWORD_FILE or redis://:password@host here.",
        )


def _unsafe_tls() -> Iterator[tuple[str, str]]:
    if settings.PUBLIC_URL.startswith("https:") and settings.SECURE_PROXY_SSL_HEADER is None:
        yield (
            "E007",
            "HACRL_PUBLIC_URL is https, but no TLS proxy is configured, so cookies would be sent unencrypted: let the "
            "proxy set X-Forwarded-Proto, and set HACRL_TLS_PROXY=1.",
        )
    if settings.SECURE_PROXY_SSL_HEADER and not (settings.SESSION_COOKIE_SECURE and settings.CSRF_COOKIE_SECURE):
        yield "E008", "HACRL_TLS_PROXY=1 needs SESSION_COOKIE_SECURE and CSRF_COOKIE_SECURE."


def _unsafe_deployment() -> Iterator[tuple[str, str]]:
    if is_public():
        if settings.SECURE_PROXY_SSL_HEADER is None and not settings.PLAIN_HTTP:
            yield (
                "E010",
                "HACRL_ALLOWED_HOSTS admits other machines, and without TLS anybody on the network path can read "
                "passwords and sessions: put a TLS proxy in front and set HACRL_TLS_PROXY=1 (docs/deploy.md), or "
                "accept the risk with HACRL_PLAIN_HTTP=1.",
            )
    # A container accepts connections from every machine that reaches its port, and those may name any host.
    elif settings.DEBUG:
        yield "E011", f"HACRL_DEBUG=1 {SHOWS_SECRETS}: unset it."
    elif is_weak_key(settings.SECRET_KEY):
        yield "E011", WEAK_KEY


def _is_remote(url: str) -> bool:
    host = urlsplit(url).hostname
    return urlsplit(url).scheme != "unix" and bool(host) and not is_loopback(host or "")


def _messages(*rules: Callable[[], Iterator[tuple[str, str]]]) -> list[CheckMessage]:
    return [Error(text, id=f"hacrl.{code}") for rule in rules for code, text in rule()]


@register(Tags.security)
def safe_settings(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    return _messages(_unsafe_web, _unsafe_storage, _unsafe_tls)


@register(Tags.security, deploy=True)
def safe_deployment(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    return _messages(_unsafe_deployment)


def refuse_unsafe_settings() -> None:
    """For a process that is not a Django command. Error: ImproperlyConfigured."""
    if messages := safe_settings():
        raise ImproperlyConfigured(" ".join(str(message.msg) for message in messages))
