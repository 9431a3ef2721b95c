"""What is done to a world's web from outside, in processes of their own so that they slow no measurement.

`python -m tests.faults.strangers KIND PORT SECONDS [ARGUMENT...]` prints one JSON object at its end. KIND: endless (a
header without an end), half (1,000 requests that are never complete), readers SESSION,... PATH,... (a user each).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import sys
import threading
import time
from typing import Any

HEADER_BYTES = 200 * 2**20
NUM_HALF = 1000
ADDRESSES = 8  # 127.0.0.1 and the next ones
THINK_S = 0.2  # between two pages of a reader


def endless(port: int, seconds: float) -> dict[str, Any]:
    """Again and again; answers: first lines, sent: the most bytes of one header."""
    ends_at, answers, most = time.monotonic() + seconds, [], 0
    while time.monotonic() < ends_at:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            sent, line = 0, b""
            with contextlib.suppress(ConnectionError):
                while sent < HEADER_BYTES and not select.select([one], [], [], 0)[0]:
                    one.sendall(b"X: " + b"a" * 8000 + b"\r\n")
                    sent += 8005
            with contextlib.suppress(ConnectionError):
                line = one.recv(4096).partition(b"\r\n")[0]
        answers.append(line.decode() or "reset")
        most = max(most, sent)
    return {"answers": answers, "sent": most}


def half(port: int, seconds: float) -> dict[str, Any]:
    """All at once, for so long; answers: first lines of those that were answered, open: how many were not."""
    sockets: list[socket.socket] = []
    for number in range(NUM_HALF):
        one = socket.socket()
        one.bind((f"127.0.0.{1 + number % ADDRESSES}", 0))
        one.settimeout(10)
        with contextlib.suppress(OSError):
            one.connect(("127.0.0.1", port))
            one.sendall(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        sockets.append(one)
    waiting, answers, ends_at = set(sockets), [], time.monotonic() + seconds
    poll = select.poll()
    by_number = {one.fileno(): one for one in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    while waiting and (left := ends_at - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            line = b""
            with contextlib.suppress(OSError):
                line = by_number[number].recv(4096).partition(b"\r\n")[0]
            answers.append(line.decode() or "closed")
            poll.unregister(number)
            waiting.discard(by_number[number])
    for one in sockets:
        one.close()
    return {"answers": answers, "open": len(waiting)}


def readers(port: int, seconds: float, sessions: str, paths: str) -> dict[str, Any]:
    """Each turns pages; times: path and seconds of each page, failed: those without a 200."""
    times: list[tuple[str, float]] = []
    failed: list[str] = []
    ends_at = time.monotonic() + seconds

    def read(session: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while True:
            for path in paths.split(","):
                began = time.monotonic()
                if began > ends_at:
                    return
                try:
                    connection.request("GET", path, headers={"Cookie": f"hacrl_session={session}"})
                    answer = connection.getresponse()
                    answer.read()
                except (OSError, http.client.HTTPException) as error:
                    failed.append(f"{path}: {error!r}")
                    connection.close()
                    continue
                times.append((path, time.monotonic() - began))
                if answer.status != 200:
                    failed.append(f"{path}: {answer.status}")
                time.sleep(THINK_S)

    threads = [threading.Thread(target=read, args=(session,)) for session in sessions.split(",")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"times": times, "failed": failed}


if __name__ == "__main__":
    kind, port, seconds, *arguments = sys.argv[1:]
    print(
        json.dumps({"endless": endless, "half": half, "readers": readers}[kind](int(port), float(seconds), *arguments))
    )
