"""HTTP servers on this machine: what a test's server answers is its handler, how it starts and ends is here."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

POLL_S = 0.02  # how long the end of a server may be noticed late; of the standard library .5
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Handler(BaseHTTPRequestHandler):
    """Reads a body as a whole, answers in one piece and writes no log."""

    def body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def bearer(self) -> str:
        """The token of the request, or an empty text."""
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS) -> None:
        """An answer to HEAD has the headers alone."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def http_server(handler: type[Handler]) -> Iterator[str]:
    """Answers on a free port of this machine while the context lasts; its address, without a slash at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
