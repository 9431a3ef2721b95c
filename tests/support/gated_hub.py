"""A hub on this machine with one gated model, which looks at tokens."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.http_server import Handler, http_server

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GATED = "meta/gated"
RIGHT, NO_ACCESS, WRONG = "hf_right_0123456789", "hf_no_access_0123456789", "hf_wrong_0123456789"
ACCOUNTS = {RIGHT: "ada-on-the-hub", NO_ACCESS: "bob-on-the-hub"}


class GatedHub:
    """Everybody may read the model's description, and whoever has access its files. `hangs`: it never answers."""

    def __init__(self, folder: Path) -> None:
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.hangs = threading.Event()
        self.ends = threading.Event()
        self.unanswered = 0
        self.address = ""

    def answer_to(self, path: str, token: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        path = path.partition("?")[0]
        if token and token not in ACCOUNTS:
            return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"{}"
        if path == "/api/whoami-v2":
            return (200, {}, json.dumps({"name": ACCOUNTS[token]}).encode()) if token else (401, {}, b"{}")
        if path.startswith(f"/api/models/{GATED}/tree/"):
            entry = {"type": "file", "oid": "0" * 40}
            tree = [entry | {"path": name, "size": len(body)} for name, body in self.files.items()]
            return 200, {}, json.dumps(tree).encode()
        if path.startswith(f"/api/models/{GATED}"):
            siblings = [{"rfilename": name, "size": len(body)} for name, body in self.files.items()]
            return 200, {}, json.dumps({"id": GATED, "sha": COMMIT, "gated": "manual", "siblings": siblings}).encode()
        name = path.rpartition("/")[2]
        if not path.startswith(f"/{GATED}/resolve/"):
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if token != RIGHT:
            return 403 if token else 401, {"X-Error-Code": "GatedRepo"}, b"{}"
        if name not in self.files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
        body = self.files[name]
        return 200, {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}, body


@contextmanager
def gated_hub(folder: Path) -> Iterator[GatedHub]:
    """Serves the files of a model's folder."""
    hub = GatedHub(folder)

    class Answers(Handler):
        def do_GET(self) -> None:
            if hub.hangs.is_set():
                hub.unanswered += 1
                hub.ends.wait(60)
                return
            status, headers, body = hub.answer_to(self.path, self.bearer())
            part = self.headers.get("Range", "").removeprefix("bytes=")
            if part and status == 200:
                first, _, last = part.partition("-")
                body, status = body[int(first) : int(last) + 1 if last else None], 206
            self.reply(status, body, headers)

        do_HEAD = do_GET

    with http_server(Answers) as hub.address:
        try:
            yield hub
        finally:
            hub.ends.set()
