"""Limits before a request is parsed, on sockets of a real server."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from django.conf import settings

from hacrl_web.web import http_limits
from tests.support.web.live import Server
from tests.support.web.live import server as server

HEAD = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def port(transactional_db, server: Server) -> Iterator[int]:
    yield server.port
    counted = (http_limits.HttpProtocol.by_address, http_limits.HttpProtocol.half_sent)
    assert not any(counted), "a closed connection is still counted"


def opened(stack: ExitStack, port: int, data: bytes = b"") -> socket.socket:
    one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
    one.sendall(data)
    return one


def answer(one: socket.socket) -> bytes:
    """Everything until the server closes."""
    pieces = []
    while True:
        try:
            piece = one.recv(65536)
        except ConnectionResetError:
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def wait_until_closed() -> None:
    deadline = time.monotonic() + 60
    while http_limits.HttpProtocol.by_address and time.monotonic() < deadline:
        time.sleep(0.01)


def test_head_over_64_kib_is_a_431_in_one_piece_or_without_an_end(port: int) -> None:
    with ExitStack() as stack:
        whole = opened(stack, port, HEAD + b"X: " + b"a" * http_limits.MAX_HEAD_BYTES + b"\r\n\r\n")
        assert answer(whole).startswith(b"HTTP/1.1 431 ")
        endless = opened(stack, port, HEAD)
        sent = 0
        with suppress(ConnectionError):
            while sent < 2**26:
                endless.sendall(b"X: " + b"a" * 8000 + b"\r\n")
                sent += 8005
        assert sent < 2**24  # what the kernel's buffers hold
        usual = opened(stack, port, HEAD + b"X: " + b"a" * 60000 + b"\r\nConnection: close\r\n\r\n")
        assert answer(usual).startswith(b"HTTP/1.1 200 ")
    wait_until_closed()


def test_head_and_body_that_do_not_arrive_are_a_408_and_a_silent_connection_is_closed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "HEAD_TIMEOUT_S", 0.5)
    monkeypatch.setattr(http_limits, "BODY_TIMEOUT_S", 0.5)
    post = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    with ExitStack() as stack:
        half = opened(stack, port, HEAD)
        silent = opened(stack, port)
        waiting = opened(stack, port, post + b"Content-Length: 100\r\n\r\nab")
        again = opened(stack, port, HEAD + b"\r\n")
        assert again.recv(65536).startswith(b"HTTP/1.1 200 ")
        again.sendall(b"GET / HTTP")  # the second request of a connection
        assert answer(half).startswith(b"HTTP/1.1 408 ")
        assert answer(silent) == b""
        assert answer(waiting).startswith(b"HTTP/1.1 408 ")
        assert b"HTTP/1.1 408 " in answer(again)
    wait_until_closed()


POST = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"


def test_body_that_trickles_is_a_408_and_a_slow_one_that_goes_on_arrives(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "BODY_TIMEOUT_S", 1.0)
    head = POST + b"Content-Length: 6000\r\nConnection: close\r\n\r\n"
    with ExitStack() as stack:
        trickle, slow = opened(stack, port, head), opened(stack, port, head)
        for _ in range(6):  # 3 s, three times what a body of few bytes has; no gap of a second
            time.sleep(0.5)
            slow.sendall(b"a" * 1000)
            with suppress(ConnectionError):
                trickle.sendall(b"a")
        assert answer(trickle).startswith(b"HTTP/1.1 408 ")
        assert answer(slow).startswith(b"HTTP/1.1 403 ")  # read to its end: without a CSRF token
    wait_until_closed()


def test_of_too_many_half_sent_requests_the_slowest_goes_and_whole_ones_are_answered(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "HALF_SENT", 6)
    monkeypatch.setattr(http_limits, "SLOW_HEAD_S", 3.0)
    monkeypatch.setattr(settings, "CONNECTIONS_PER_ADDRESS", 1000)
    with ExitStack() as stack:
        upload = opened(stack, port, POST + b"Content-Length: 100000\r\nConnection: close\r\n\r\n" + b"a" * 50_000)
        idle = opened(stack, port, POST + b"Content-Length: 100000\r\n\r\na")
        first = opened(stack, port, HEAD)
        time.sleep(3.2)
        heads = [opened(stack, port, HEAD) for _ in range(3)]
        newest = opened(stack, port, HEAD)
        assert answer(first).startswith(b"HTTP/1.1 408 ")
        assert answer(opened(stack, port, HEAD + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert answer(idle).startswith(b"HTTP/1.1 408 ")  # no head takes 3 s yet
        for one in (*heads, newest):
            one.sendall(b"Connection: close\r\n\r\n")
            assert answer(one).startswith(b"HTTP/1.1 200 ")
        upload.sendall(b"a" * 50_000)
        assert answer(upload).startswith(b"HTTP/1.1 403 ")
    wait_until_closed()


def test_one_address_has_so_many_connections_and_a_proxy_any_number(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "CONNECTIONS_PER_ADDRESS", 5)
    with ExitStack() as stack:
        for _ in range(5):
            opened(stack, port, HEAD)
        time.sleep(0.2)
        assert answer(opened(stack, port)).startswith(b"HTTP/1.1 429 ")
    wait_until_closed()
    monkeypatch.setenv("HACRL_PROXY_ADDRESSES", "10.1.2.3, 127.0.0.0/8")
    with ExitStack() as stack:
        many = [opened(stack, port, HEAD) for _ in range(8)]
        for one in many:
            one.sendall(b"Connection: close\r\n\r\n")
        assert all(answer(one).startswith(b"HTTP/1.1 200 ") for one in many)
    wait_until_closed()
