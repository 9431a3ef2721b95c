"""Which addresses our requests may go to, for webhooks of alerts and for judges.

A host must be on the operator's list. Its name is resolved once and all its addresses are checked; the connection goes
to a checked address, so a later answer of the name server has no effect.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

DEFAULT_PORTS = {"https": 443, "http": 80}
log = logging.getLogger(__name__)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# IPv6 networks that map to IPv4 addresses (NAT64, 6to4, Teredo, IPv4-compatible, SIIT), and the old site-local one.
_MAPPED_NETWORKS = [
    ipaddress.ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96", "fec0::/10")
]
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class AddressRefused(ValueError):
    """The address is one to which no request may go."""


class HostUnknown(OSError):
    """The name server knows no address of the host."""


@dataclass(frozen=True)
class Allowed:
    """One entry of the list: a host name, an address or a network, and a port other than the default."""

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


@dataclass(frozen=True)
class AllowList:
    """The operator's list. variable: the environment variable that holds it, for messages."""

    variable: str
    texts: tuple[str, ...]

    @classmethod
    def of(cls, variable: str, texts: Sequence[str]) -> AllowList:
        return cls(variable, tuple(texts))

    @classmethod
    def of_variable(cls, variable: str, text: str) -> AllowList:
        """The list in a variable's text: entries separated by commas."""
        return cls(variable, tuple(entry.strip() for entry in text.split(",") if entry.strip()))

    @property
    def entries(self) -> list[Allowed]:
        """The entries without those that cannot be read."""
        return [entry for text in self.texts if (entry := _entry(self.variable, text))]

    def check_url(self, url: str) -> SplitResult:
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
        if not any(_matches(entry, host, address, port, parts.scheme) for entry in self.entries):
            raise AddressRefused(
                f"{host}{f':{port}' if port else ''} is not on this installation's list of hosts ({self.variable})."
            )
        return parts

    def checked_address(self, text: str, port: int) -> str:
        """The address, if it is public, or itself on the list for this port. Error: AddressRefused."""
        address = ipaddress.ip_address(text.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        for entry in self.entries:
            if entry.network is not None and address in entry.network and entry.port in (None, port):
                return text
        if not address.is_global or address.is_multicast or any(address in network for network in _MAPPED_NETWORKS):
            raise AddressRefused(f"The host has the address {address}, which is not public and not on the list.")
        return text

    def resolve(self, host: str, port: int) -> str:
        """The first address of a host, after all of them are checked. Errors: AddressRefused, HostUnknown."""
        try:
            records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise HostUnknown(f"the name {host} could not be resolved") from error
        addresses = [self.checked_address(str(entry[4][0]), port) for entry in records]
        if not addresses:
            raise HostUnknown(f"the name {host} has no address")
        return addresses[0]


@dataclass(frozen=True)
class PinnedRequest:
    """A request to a checked address. host: as an URL has it.  headers: with the name for which the server answers."""

    scheme: str
    host: str
    port: int
    path: bytes
    headers: dict[str, str]
    name: str  # of the certificate

    @classmethod
    def to(cls, parts: SplitResult, address: str) -> PinnedRequest:
        """parts: of an allowed URL; address: where its host was found."""
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        name = parts.hostname or ""
        header = f"[{name}]" if ":" in name else name
        is_default_port = DEFAULT_PORTS[parts.scheme] == port
        return cls(
            scheme=parts.scheme,
            host=f"[{address}]" if ":" in address else address,
            port=port,
            path=f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}".encode(),
            headers={"Host": header if is_default_port else f"{header}:{port}", "User-Agent": "HACRL-Web"},
            name=name,
        )


@lru_cache
def _entry(variable: str, text: str) -> Allowed | None:
    try:
        return Allowed.parse(text)
    except ValueError as error:
        log.warning("%s: %s; this entry is ignored", variable, error)
        return None


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
