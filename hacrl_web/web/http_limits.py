"""Limits that hold before a request is parsed, for clients that are not logged in: heads, waiting times, connections.

uvicorn loads the class by name (`ops.preflight.command`). The limit of bodies is in `body_limit`, which knows the user.
"""

from __future__ import annotations

import os
from asyncio import Transport
from asyncio.events import TimerHandle
from collections import Counter
from ipaddress import ip_address, ip_network
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 2**10  # request line and headers
HEAD_TIMEOUT_S = 20.0  # from the first byte of a request, or the connection, to the end of its head
BODY_TIMEOUT_S = 60.0  # without a byte of a body that is waited for
CONNECTIONS_PER_ADDRESS = int(os.environ.get("HACRL_CONNECTIONS_PER_ADDRESS", "256"))  # without WebSockets

TOO_LONG = "The request line and headers may have 64 KiB together."
TOO_SLOW = "The request did not arrive in time."
TOO_MANY = "Too many open connections from this address."


async def refuse_head(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The ASGI application of a request whose head is complete and too long."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 431, "headers": headers})
    await send({"type": "http.response.body", "body": TOO_LONG.encode()})


class HttpProtocol(HttpToolsProtocol):
    """One connection. 431: a head over MAX_HEAD_BYTES; 408: a head or body that does not arrive; 429: connections.

    A proxy that HACRL_PROXY_ADDRESSES names may have any number of connections: it is one address for many clients.
    """

    by_address: Counter[str] = Counter()  # open connections of this process, without WebSockets

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        self._is_head_complete = False
        self._is_body_complete = True
        self._address = ""  # under which the connection is counted; empty if it is not
        self._timer: TimerHandle | None = None

    # ---- the connection ----

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client and not self._is_proxy(self.client[0]):
            self._address = self.client[0]
            self.by_address[self._address] += 1
            if self.by_address[self._address] > CONNECTIONS_PER_ADDRESS:
                self._refuse(429, TOO_MANY)
                return
        self._wait(HEAD_TIMEOUT_S)

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
                self._wait(HEAD_TIMEOUT_S)
        elif not self._is_body_complete:
            self._wait(BODY_TIMEOUT_S)
        super().data_received(data)
        if not self._is_head_complete and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, TOO_LONG)

    # ---- a request ----

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head_complete = False
        self._wait(HEAD_TIMEOUT_S)

    def on_headers_complete(self) -> None:
        length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self.app = refuse_head if length > MAX_HEAD_BYTES else self.config.loaded_app
        self._is_head_complete, self._is_body_complete, self._head_bytes = True, False, 0
        self._wait(BODY_TIMEOUT_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_body_complete = True
        self._is_head_complete = False
        self._end_wait()
        super().on_message_complete()

    # ---- waiting ----

    def _wait(self, seconds: float) -> None:
        self._end_wait()
        self._timer = self.loop.call_later(seconds, self._end_of_wait)

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_of_wait(self) -> None:
        self._timer = None
        is_answering = self.cycle is not None and not self.cycle.response_complete and self._is_body_complete
        if is_answering or (self._is_head_complete and self.flow.read_paused):  # the client is not what is waited for
            self._wait(BODY_TIMEOUT_S)
        elif (self._is_head_complete and self.cycle.response_started) or not self._head_bytes + self._is_head_complete:
            self.transport.close()  # an answer that has begun, or a browser's spare connection
        else:
            self._refuse(408, TOO_SLOW)

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
