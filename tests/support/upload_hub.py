"""A hub on this machine that takes repositories, files and commits, and looks at tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.http_server import Handler, http_server

WRITER, READER = "hf_writer_0123456789", "hf_reader_0123456789"
OWNER = "ada"


class UploadHub:
    """repos: by id whether it is private, and its files. blobs: by SHA-256 what was sent. full: every PUT is refused.

    holds: a PUT waits until it is set.
    """

    def __init__(self) -> None:
        self.address = ""
        self.private: dict[str, bool] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.messages: list[str] = []
        self.blobs: dict[str, bytes] = {}
        self.tokens: set[str] = set()
        self.full = False
        self.holds = threading.Event()
        self.holds.set()

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":  # of the front matter of README.md
            return 200, {"errors": [], "warnings": []}
        repo = "/".join(path.removeprefix("/api/models/").removeprefix("/").split("/")[:2]).removesuffix(".git")
        if repo not in self.files:
            return 404, {"error": "Repository not found"}
        if "/preupload/" in path:
            entries = json.loads(body)["files"]
            modes = [
                {"path": one["path"], "shouldIgnore": False,
                 "uploadMode": "lfs" if one["path"].endswith((".safetensors", ".bin")) else "regular"}
                for one in entries
            ]  # fmt: skip
            return 200, {"files": modes}
        if path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            answers = [
                {**one, "actions": {"upload": {"href": f"{self.address}/blobs/{one['oid']}", "header": {}}}}
                for one in objects
            ]
            return 200, {"transfer": "basic", "objects": answers}
        if "/commit/" in path:
            self._commit(repo, [json.loads(line) for line in body.splitlines() if line.strip()])
            return 200, {"commitUrl": f"{self.address}/{repo}/commit/1", "commitOid": "1" * 40, "success": True}
        return 404, {}

    def _create(self, request: dict[str, Any]) -> tuple[int, Any]:
        owner = request.get("organization") or OWNER
        if owner != OWNER:
            return 404, {"error": "no such organization"}
        repo = f"{owner}/{request['name']}"
        address = {"url": f"{self.address}/{repo}", "name": repo}
        if repo in self.files:
            return 409, address | {"error": "You already created this model repo"}
        self.private[repo] = request.get("visibility") == "private" or bool(request.get("private"))
        self.files[repo] = {}
        return 200, address

    def _commit(self, repo: str, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            elif line["key"] == "file":
                self.files[repo][value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.files[repo][value["path"]] = self.blobs[value["oid"]]


@contextmanager
def upload_hub() -> Iterator[UploadHub]:
    hub = UploadHub()

    class Answers(Handler):
        def _answer(self, status: int, body: Any) -> None:
            headers = {"Content-Type": "application/json"}
            if isinstance(body, dict) and body.get("error"):
                headers["X-Error-Message"] = body["error"]
            self.reply(status, json.dumps(body).encode(), headers)

        def _may(self) -> bool:
            token = self.bearer()
            hub.tokens.add(token)
            if token not in (WRITER, READER):
                self._answer(401, {"error": "Invalid credentials"})
            elif token == READER and self.command != "GET":
                self._answer(403, {"error": "You do not have write access"})
            else:
                return True
            return False

        def do_GET(self) -> None:
            repo = self.path.partition("?")[0].removeprefix("/api/models/")
            if self._may():
                known = repo in hub.private
                self._answer(200 if known else 404, {"id": repo, "private": hub.private.get(repo), "siblings": []})

        def do_POST(self) -> None:
            body = self.body()
            if self._may():
                self._answer(*hub.post(self.path.partition("?")[0], body))

        def do_PUT(self) -> None:
            body = self.body()
            hub.holds.wait(60)
            if hub.full:
                self._answer(413, {"error": "no room"})
                return
            digest = hashlib.sha256(body).hexdigest()
            assert self.path == f"/blobs/{digest}"
            hub.blobs[digest] = body
            self._answer(200, {})

    with http_server(Answers) as hub.address:
        try:
            yield hub
        finally:
            hub.holds.set()
