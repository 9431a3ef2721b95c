"""Sends one POST to the address that a user gave, and nowhere else.

The host must be on the installation's list. Its name is resolved once, all its addresses are checked, and the
connection goes to a checked address, so a later answer of the name server has no effect. No redirect is followed, no
proxy is used, only the status is read, and everything ends after ten seconds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx2 as httpx
from django.conf import settings

TOTAL_S = 10.0
CONNECT_S = 5.0
DEFAULT_PORTS = {"https": 443, "http": 80}
RETRYABLE = (408, 425, 429)
log = logging.getLogger(__name__)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# IPv6 networks that map to IPv4 addresses (NAT64, 6to4, Teredo, IPv4-compatible, SIIT), and the old site-local one.
_MAPPED_NETWORKS = [
    ipaddress.ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96", "fec0::/10")
]
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class AddressRefused(ValueError):
    """No request may go to this address."""


class DeliveryFailed(RuntimeError):
    """The request failed. `is_final`: a retry is of no use."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True)
class Allowed:
    """One entry of HACRL_WEBHOOK_ALLOW: a host name, an address or a network, and a port other than the default."""

    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Allowed:
        """Error: ValueError."""
        text = text.strip().lower()
        if cls(text, None).network is not None:
            return cls(text, None)
        match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::(\d{1,5}))?", text)
        if not match:
            raise ValueError(f"{text!r} is not a host, host:port, address or network")
        return cls(match[1].strip("[]"), int(match[2]) if match[2] else None)

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
        try:
            return ipaddress.ip_network(self.host)
        except ValueError:
            return None


def allowed() -> list[Allowed]:
    """The installation's list."""
    return [entry for text in settings.WEBHOOK_ALLOW if (entry := _entry(text))]


@lru_cache
def _entry(text: str) -> Allowed | None:
    try:
        return Allowed.parse(text)
    except ValueError as error:
        log.warning("HACRL_WEBHOOK_ALLOW: %s; this entry is ignored", error)
        return None


def check_url(url: str) -> SplitResult:
    """The parts of an allowed URL, checked without a name server. Error: AddressRefused."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise AddressRefused("The address must have the form https://host/path.") from error
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise AddressRefused("The address must have the form https://host/path.")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("The address may not contain a user name or password.")
    if re.search(r"[^\x21-\x7e]|\\", url):
        raise AddressRefused("The address contains characters that are not allowed.")
    address = _literal(host)
    if address is None and not _HOST.fullmatch(host):
        raise AddressRefused("The host's name is not valid.")
    if not any(_matches(entry, host, address, port, parts.scheme) for entry in allowed()):
        raise AddressRefused(
            f"{host}{f':{port}' if port else ''} is not on this installation's list of hosts (HACRL_WEBHOOK_ALLOW)."
        )
    return parts


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _matches(entry: Allowed, host: str, address: Address | None, port: int | None, scheme: str) -> bool:
    if (port or DEFAULT_PORTS[scheme]) != (entry.port or DEFAULT_PORTS[scheme]):
        return False
    if address is None:
        return entry.host == host.rstrip(".").lower()
    return entry.network is not None and address in entry.network


def checked_address(text: str, port: int) -> str:
    """The address, if it is public, or itself on the list for this port. Error: AddressRefused."""
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    for entry in allowed():
        if entry.network is not None and address in entry.network and entry.port in (None, port):
            return text
    if not address.is_global or address.is_multicast or any(address in network for network in _MAPPED_NETWORKS):
        raise AddressRefused(f"The host has the address {address}, which is not public and not on the list.")
    return text


def resolve(host: str, port: int) -> str:
    """The first address of a host, after all of them are checked. Errors: AddressRefused, DeliveryFailed."""
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DeliveryFailed(f"the name {host} could not be resolved") from error
    addresses = [checked_address(str(entry[4][0]), port) for entry in records]
    if not addresses:
        raise DeliveryFailed(f"the name {host} has no address")
    return addresses[0]


def post(url: str, body: dict[str, Any], find: Callable[[str, int], str] = resolve) -> int:
    """Send the body; returns the status, 200 to 299. Errors: AddressRefused, DeliveryFailed."""
    parts = check_url(url)
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    address = find(parts.hostname or "", port)
    try:
        status = asyncio.run(asyncio.wait_for(_request(parts, address, port, body), TOTAL_S))
    except TimeoutError as error:
        raise DeliveryFailed(f"no answer within {TOTAL_S:g} s") from error
    except httpx.HTTPError as error:
        raise DeliveryFailed(f"{type(error).__name__}: {error}"[:200]) from error
    if 300 <= status < 400:
        raise DeliveryFailed(f"answered {status}: redirects are not followed", is_final=True)
    if not 200 <= status < 300:
        raise DeliveryFailed(f"answered {status}", is_final=status < 500 and status not in RETRYABLE)
    return status


async def _request(parts: SplitResult, address: str, port: int, body: dict[str, Any]) -> int:
    host_in_url = f"[{address}]" if ":" in address else address
    query = f"?{parts.query}" if parts.query else ""
    target = httpx.URL(
        scheme=parts.scheme, host=host_in_url, port=port, raw_path=f"{parts.path or '/'}{query}".encode()
    )
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name
    is_default_port = DEFAULT_PORTS[parts.scheme] == port
    headers = {"Host": name if is_default_port else f"{name}:{port}", "User-Agent": "HACRL-Web"}
    client = httpx.AsyncClient(
        trust_env=False, follow_redirects=False, timeout=httpx.Timeout(TOTAL_S, connect=CONNECT_S)
    )
    async with client:
        # The certificate must match the name, although the connection goes to the checked address.
        extensions = {"sni_hostname": parts.hostname}
        async with client.stream("POST", target, json=body, headers=headers, extensions=extensions) as answer:
            return answer.status_code  # without waiting for the body
