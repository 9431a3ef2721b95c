"""A destination of mirrors that accepts connections and answers none, and a client without any time-out for it."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

# Started in place of the mirrors' Python. A run for `mlflow` is opened only after the address answered; it is then
# written as TensorBoard's files are, which a test can read.
CLIENT = """#!/bin/sh
exec {python} -c '
import json, os, socket, sys
from workers.mirrors.__main__ import answers
output = os.fdopen(os.dup(1), "w")
def lines():
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("kind") == "mlflow":
            host, port = request["options"]["url"].removeprefix("http://").split(":")
            with socket.create_connection((host, int(port))) as connection:
                connection.recv(1)
            request["kind"] = "tensorboard"
        yield json.dumps(request)
for answer in answers(lines()):
    print(json.dumps(answer), file=output, flush=True)
'
"""


def client_without_patience(folder: Path, python: str) -> str:
    """The path of a program that stands in for `python` with this client."""
    path = folder / "client"
    path.write_text(CLIENT.format(python=python))
    path.chmod(0o755)
    return str(path)


class SilentServer:
    """It accepts; it answers only while `answers` is set, to connections from then on."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.num_accepted = 0
        self._kept: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._kept.append(connection)
                self.num_accepted += 1
                if self.answers.is_set():
                    connection.sendall(b"\0")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for one in (self._listener, *self._kept):
            one.close()
