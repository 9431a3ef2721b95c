"""A small OpenAI-compatible server on this machine, whose answers a test decides."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.http_server import Handler, http_server

Answer = str | int | tuple[int, dict[str, Any]]  # a text, a status, or a status with a body


class JudgeServer:
    """answer: what it says to a message; requests: (headers, path, body) of each request, in order."""

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self.answer, self.requests, self.delay_s = answer, [], 0.0
        self.open, self.most_open, self.lock = 0, 0, threading.Lock()
        self.root = ""

    @property
    def port(self) -> int:
        return int(self.root.rpartition(":")[2])

    @property
    def address(self) -> str:
        return f"{self.root}/v1"

    @property
    def allowed(self) -> str:
        """Its entry of HACRL_JUDGE_ALLOW."""
        return self.root.removeprefix("http://")

    def answer_to(self, headers: dict[str, str], path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body, after the delay."""
        with self.lock:
            self.requests.append((headers, path, body))
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        time.sleep(self.delay_s)
        answer = self.answer(body["messages"][0]["content"])
        with self.lock:
            self.open -= 1
        if isinstance(answer, int):
            return answer, {"error": {"message": f"refused with {headers.get('Authorization')}"}}
        if isinstance(answer, str):
            usage = {"prompt_tokens": 1000, "completion_tokens": 100}
            return 200, {"choices": [{"message": {"content": answer}}], "usage": usage}
        return answer


@contextmanager
def judge_server(answer: Callable[[str], Answer]) -> Iterator[JudgeServer]:
    server = JudgeServer(answer)

    class Answers(Handler):
        def do_POST(self) -> None:
            status, content = server.answer_to(dict(self.headers), self.path, json.loads(self.body()))
            elsewhere = {"Location": "http://127.0.0.1:9/"} if 300 <= status < 400 else {}
            self.reply(status, json.dumps(content).encode(), elsewhere)

    with http_server(Answers) as server.root:
        yield server
