"""A small OpenAI-compatible server on this machine, whose answers a test decides."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = str | int | tuple[int, dict[str, Any]]  # a text, a status, or a status with a body


class JudgeServer:
    """answer: what it says to a message; requests: (headers, body) of each request, in order."""

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self.answer, self.requests, self.delay_s = answer, [], 0.0
        self.open, self.most_open, self.lock = 0, 0, threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    server.requests.append((dict(self.headers), self.path, body))
                    server.open += 1
                    server.most_open = max(server.most_open, server.open)
                time.sleep(server.delay_s)
                answer = server.answer(body["messages"][0]["content"])
                with server.lock:
                    server.open -= 1
                if isinstance(answer, int):
                    answer = (answer, {"error": {"message": f"refused with {self.headers.get('Authorization')}"}})
                if isinstance(answer, str):
                    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
                    answer = (200, {"choices": [{"message": {"content": answer}}], "usage": usage})
                status, content = answer
                text = json.dumps(content).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "http://127.0.0.1:9/")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def allowed(self) -> str:
        """Its entry of HACRL_JUDGE_ALLOW."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def judge_server(answer: Callable[[str], Answer]) -> Iterator[JudgeServer]:
    server = JudgeServer(answer)
    try:
        yield server
    finally:
        server.close()
