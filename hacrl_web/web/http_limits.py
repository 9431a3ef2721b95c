"""Limits that hold before a request is parsed, for clients that are not logged in: heads, waiting times, connections.

uvicorn loads the class by name (`ops.preflight.command`). The limit of bodies is in `body_limit`, which knows the user.

uvicorn's own options do not hold, as measured on 27 November 2026: httptools keeps an endless header in memory (138 MB
in 10 s), h11 refuses that one, and with either 1,000 requests that are never complete stay open without an end.
`limit_concurrency` would refuse everybody then.
"""

from __future__ import annotations

import os
from asyncio import Transport
from asyncio.events import TimerHandle
from collections import Counter
from ipaddress import ip_address, ip_network
from typing import Any

from django.conf import settings
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 2**10  # request line and headers
HEAD_TIMEOUT_S = 20.0  # from the first byte of a request, or the connection, to the end of its head
BODY_TIMEOUT_S = 60.0  # without a byte of a body that is waited for
BODY_BYTES_PER_S = 1024  # a body arrives within BODY_TIMEOUT_S and a second for so many of its bytes
HALF_SENT = 512  # requests of all addresses that have not arrived completely, and connections without one
SLOW_HEAD_S = 1.0  # a head that takes longer is the first to go

TOO_LONG = "The request line and headers may have 64 KiB together."
TOO_SLOW = "The request did not arrive in time."
CROWDED_OUT = "Too many requests are half sent, and this one is slow."
TOO_MANY = "Too many open connections from this address."


async def refuse_head(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The ASGI application of a request whose head is complete and too long."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 431, "headers": headers})
    await send({"type": "http.response.body", "body": TOO_LONG.encode()})


class HttpProtocol(HttpToolsProtocol):
    """One connection. 431: a head over MAX_HEAD_BYTES; 408: a head or body that does not arrive; 429: connections.

    Of more than HALF_SENT requests the slowest is refused, never the newest: a whole request takes milliseconds.
    A proxy that HACRL_PROXY_ADDRESSES names may have any number of connections: it is one address for many clients.
    """

    by_address: Counter[str] = Counter()  # open connections of this process, without WebSockets
    half_sent: dict[HttpProtocol, float] = {}  # those that are waited for, with the time of their request's begin

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        self._is_head_complete = False
        self._is_body_complete = True
        self._body_bytes = 0
        self._address = ""  # under which the connection is counted; empty if it is not
        self._timer: TimerHandle | None = None

    # ---- the connection ----

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client and not self._is_proxy(self.client[0]):
            self._address = self.client[0]
            self.by_address[self._address] += 1
            if self.by_address[self._address] > settings.CONNECTIONS_PER_ADDRESS:
                self._refuse(429, TOO_MANY)
                return
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        self._discount()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._end_wait()
        self._discount()
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self._is_head_complete:
            self._head_bytes += len(data)  # with what follows the head in this piece: on_headers_complete knows better
            if self._timer is None:
                self._begin()
        super().data_received(data)
        if not self._is_head_complete and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, TOO_LONG)

    # ---- a request ----

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head_complete = False
        self._begin()

    def on_headers_complete(self) -> None:
        length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self.app = refuse_head if length > MAX_HEAD_BYTES else self.config.loaded_app
        self._is_head_complete, self._is_body_complete, self._head_bytes, self._body_bytes = True, False, 0, 0
        self._wait(BODY_TIMEOUT_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        since = self.loop.time() - self.half_sent.get(self, self.loop.time())
        self._wait(BODY_TIMEOUT_S + min(0.0, self._body_bytes / BODY_BYTES_PER_S - since))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_body_complete = True
        self._is_head_complete = False
        self._end_wait()
        super().on_message_complete()

    # ---- waiting ----

    def _begin(self) -> None:
        """Wait for a request's head."""
        self._wait(HEAD_TIMEOUT_S)
        self.half_sent[self] = self.loop.time()
        if len(self.half_sent) > HALF_SENT:
            max(self.half_sent, key=HttpProtocol._slowness)._drop(CROWDED_OUT)

    def _slowness(self) -> tuple[int, float]:
        """First heads that take over SLOW_HEAD_S, the oldest of them; then bodies with the fewest bytes a second."""
        seconds = self.loop.time() - self.half_sent[self]
        if self._is_head_complete:
            return (1, -self._body_bytes / (seconds + 1.0))
        return (2 if seconds > SLOW_HEAD_S else 0, seconds)

    def _wait(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._end_of_wait)

    def _end_wait(self) -> None:
        """Stop the timer: the server waits for no more of the request."""
        self._stop_timer()
        self.half_sent.pop(self, None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_of_wait(self) -> None:
        self._timer = None
        is_answering = self.cycle is not None and not self.cycle.response_complete and self._is_body_complete
        if is_answering or (self._is_head_complete and self.flow.read_paused):  # the client is not what is waited for
            self.half_sent[self] = self.loop.time()
            self._wait(BODY_TIMEOUT_S)
        else:
            self._drop(TOO_SLOW)

    def _drop(self, text: str) -> None:
        if (self._is_head_complete and self.cycle.response_started) or not self._head_bytes + self._is_head_complete:
            self._end_wait()
            self.transport.close()  # an answer that has begun, or a browser's spare connection
        else:
            self._refuse(408, text)

    def _refuse(self, status: int, text: str) -> None:
        """Answer without the application, and close."""
        self._end_wait()
        self.logger.warning("%s: %s", self._address or "a client", text)
        body = text.encode()
        lines = [
            STATUS_LINE[status],
            b"content-type: text/plain; charset=utf-8\r\n",
            b"content-length: %d\r\n" % len(body),
            b"connection: close\r\n\r\n",
            body,
        ]
        self.transport.write(b"".join(lines))
        self.transport.close()

    def _discount(self) -> None:
        if self._address:
            self.by_address[self._address] -= 1
            if not self.by_address[self._address]:
                del self.by_address[self._address]
            self._address = ""

    def _is_proxy(self, address: str) -> bool:
        proxies = os.environ.get("HACRL_PROXY_ADDRESSES", "").replace(" ", "")
        try:
            return proxies == "*" or any(
                ip_address(address) in ip_network(one, strict=False) for one in proxies.split(",") if one
            )
        except ValueError:  # a name or a socket's path
            return address in proxies.split(",")
