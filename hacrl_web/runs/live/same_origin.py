"""The check of a socket's origin: exactly our scheme, host and port. Browsers do not check it for sockets."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import validate_host


def _host_and_port(netloc: str, scheme: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(f"{scheme}://{netloc}")
        if not parts.hostname or parts.username is not None or parts.path:
            return None
        return parts.hostname, parts.port or (443 if scheme == "https" else 80)
    except ValueError:
        return None


def _own_scheme(scope: dict[str, Any], headers: dict[bytes, list[bytes]]) -> str:
    """https if the connection is encrypted, or if a proxy that the settings trust reports that it was."""
    if scope.get("scheme") == "wss":
        return "https"
    trusted = settings.SECURE_PROXY_SSL_HEADER
    if trusted is None:
        return "http"
    name = trusted[0].removeprefix("HTTP_").replace("_", "-").lower().encode()
    return "https" if headers.get(name) == [trusted[1].encode()] else "http"


def is_same_origin(scope: dict[str, Any]) -> bool:
    """True if Origin is exactly the scheme, host and port of the request, and we serve that host."""
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    origins, hosts = headers.get(b"origin", []), headers.get(b"host", [])
    if len(origins) != 1 or len(hosts) != 1:
        return False
    scheme, _, netloc = origins[0].decode("latin-1").partition("://")
    if scheme != _own_scheme(scope, headers):
        return False
    origin = _host_and_port(netloc, scheme)
    host = _host_and_port(hosts[0].decode("latin-1"), scheme)
    if origin is None or origin != host:
        return False
    allowed = settings.ALLOWED_HOSTS or (["localhost", "127.0.0.1", "[::1]"] if settings.DEBUG else [])
    return validate_host(f"[{host[0]}]" if ":" in host[0] else host[0], allowed)
