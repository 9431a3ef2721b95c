"""Sends one POST to the address that a user gave, and nowhere else.

The host must be on the installation's list. Its name is resolved once, all its addresses are checked, and the
connection goes to a checked address, so a later answer of the name server has no effect. No redirect is followed, no
proxy is used, only the status is read, and everything ends after ten seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult

import httpx2 as httpx
from django.conf import settings

from workers.contract.allowed_address import DEFAULT_PORTS, AllowList, HostUnknown, PinnedRequest

TOTAL_S = 10.0
CONNECT_S = 5.0
RETRYABLE = (408, 425, 429)


class DeliveryFailed(RuntimeError):
    """The request failed. `is_final`: a retry is of no use."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


def allowed() -> AllowList:
    """The installation's list."""
    return AllowList.of("HACRL_WEBHOOK_ALLOW", settings.WEBHOOK_ALLOW)


def check_url(url: str) -> SplitResult:
    """The parts of an allowed URL, checked without a name server. Error: AddressRefused."""
    return allowed().check_url(url)


def resolve(host: str, port: int) -> str:
    """The first address of a host, after all of them are checked. Errors: AddressRefused, DeliveryFailed."""
    try:
        return allowed().resolve(host, port)
    except HostUnknown as error:
        raise DeliveryFailed(str(error)) from error


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
    pinned = PinnedRequest.to(parts, address)
    target = httpx.URL(scheme=pinned.scheme, host=pinned.host, port=port, raw_path=pinned.path)
    client = httpx.AsyncClient(
        trust_env=False, follow_redirects=False, timeout=httpx.Timeout(TOTAL_S, connect=CONNECT_S)
    )
    async with client:
        # The certificate must match the name, although the connection goes to the checked address.
        extensions = {"sni_hostname": pinned.name}
        async with client.stream("POST", target, json=body, headers=pinned.headers, extensions=extensions) as answer:
            return answer.status_code  # without waiting for the body
