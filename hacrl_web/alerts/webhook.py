"""One POST to an address that a user named, and to nowhere else.

The host must be on the installation's list; the name is resolved once, every address it has is checked, and the
connection goes to the checked address, so that a second answer of the name server changes nothing. No redirect is
followed, no proxy is asked, nothing but the status is read, and all of it ends after ten seconds.
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
AGAIN = (408, 425, 429)
log = logging.getLogger(__name__)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# IPv6 addresses that stand for IPv4 ones (NAT64, 6to4, Teredo, IPv4-compatible, SIIT), and the old site-local ones.
_CARRIERS = [
    ipaddress.ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96", "fec0::/10")
]
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class AddressRefused(ValueError):
    """This address is not to be asked, now or later."""


class DeliveryFailed(RuntimeError):
    """It did not work. `is_final`: trying again is of no use."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True)
class Allowed:
    """One entry of HACRL_WEBHOOK_ALLOW: a host name, an address or a network, and a port if not the usual ones."""

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
            raise ValueError(f"{text!r} is no host, host:port, address or network")
        return cls(match[1].strip("[]"), int(match[2]) if match[2] else None)

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
        try:
            return ipaddress.ip_network(self.host)
        except ValueError:
            return None


@lru_cache
def _parsed(texts: tuple[str, ...]) -> list[Allowed]:
    entries = []
    for text in texts:
        try:
            entries.append(Allowed.parse(text))
        except ValueError as error:
            log.warning("HACRL_WEBHOOK_ALLOW: %s; this entry allows nothing", error)
    return entries


def allowed() -> list[Allowed]:
    """The installation's list."""
    return _parsed(tuple(settings.WEBHOOK_ALLOW))


def check_url(url: str) -> SplitResult:
    """The parts of an address that may be asked, as far as can be said without asking a name server. Error: Refused."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise AddressRefused("This is no address of the form https://host/path.") from error
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise AddressRefused("This is no address of the form https://host/path.")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("The address may not contain a user name or password.")
    if re.search(r"[^\x21-\x7e]|\\", url):
        raise AddressRefused("The address contains characters that it may not contain.")
    address = _literal(host)
    if address is None and not _HOST.fullmatch(host):
        raise AddressRefused("The host's name is not sound.")
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


def refuse_address(text: str, port: int) -> str:
    """An address that may be connected to: public, or itself on the list for this port. Error: Refused."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    for entry in allowed():
        if entry.network is not None and address in entry.network and entry.port in (None, port):
            return text
    if not address.is_global or address.is_multicast or any(address in carrier for carrier in _CARRIERS):
        raise AddressRefused(f"The host has the address {address}, which is not public and not on the list.")
    return text


def resolve(host: str, port: int) -> str:
    """The first address of a host, once all of them are checked. Errors: Refused, Failed."""
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DeliveryFailed(f"the name {host} could not be resolved") from error
    addresses = [refuse_address(str(entry[4][0]), port) for entry in records]
    if not addresses:
        raise DeliveryFailed(f"the name {host} has no address")
    return addresses[0]


def post(url: str, body: dict[str, Any], find: Callable[[str, int], str] = resolve) -> int:
    """Send; returns the status, 200 to 299. Errors: Refused, Failed."""
    parts = check_url(url)
    host = parts.hostname or ""
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    address = find(host, port)
    try:
        status = asyncio.run(asyncio.wait_for(_ask(parts, address, port, body), TOTAL_S))
    except TimeoutError as error:
        raise DeliveryFailed(f"no answer within {TOTAL_S:g} s") from error
    except httpx.HTTPError as error:
        raise DeliveryFailed(f"{type(error).__name__}: {error}"[:200]) from error
    if 300 <= status < 400:
        raise DeliveryFailed(f"answered {status}: redirects are not followed", is_final=True)
    if not 200 <= status < 300:
        raise DeliveryFailed(f"answered {status}", is_final=status < 500 and status not in AGAIN)
    return status


async def _ask(parts: SplitResult, address: str, port: int, body: dict[str, Any]) -> int:
    host_in_url = f"[{address}]" if ":" in address else address
    target = httpx.URL(
        scheme=parts.scheme, host=host_in_url, port=port, raw_path=(parts.path or "/").encode() + _query(parts)
    )
    usual = DEFAULT_PORTS[parts.scheme] == port
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name
    headers = {"Host": name if usual else f"{name}:{port}", "User-Agent": "HACRL-Web"}
    client = httpx.AsyncClient(
        trust_env=False, follow_redirects=False, timeout=httpx.Timeout(TOTAL_S, connect=CONNECT_S)
    )
    async with client:
        # The certificate must be the name's, though the connection goes to the checked address.
        extensions = {"sni_hostname": parts.hostname}
        async with client.stream("POST", target, json=body, headers=headers, extensions=extensions) as answer:
            return answer.status_code  # who sends the rest slowly has answered all the same


def _query(parts: SplitResult) -> bytes:
    return b"?" + parts.query.encode() if parts.query else b""
