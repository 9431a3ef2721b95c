"""Sends one model's files to the hub; a process of its own, which alone has the Hub token.

`python -m workers.hub.upload` reads one JSON object from stdin: {hub_token, repo, is_private, folder, files: {path in
the repository: {path, sha256}}, texts: {path: text}, message, status}. It writes its state to the file `status`:
{phase, done, total} in bytes, then {url, repo} or {error} with `ended`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from workers.contract.number_format import format_size
from workers.hub.client import TIMEOUT_S, WHERE, WRONG_TOKEN, status_of

REPORT_EVERY_S = 0.5
READ_AT_ONCE = 2**20


class UploadRefused(Exception):
    """The files cannot be sent; the text says why and what to do."""


class UploadState:
    """What the page shows of an upload, in a file that is replaced as a whole. total, done: bytes."""

    def __init__(self, path: Path, total: int) -> None:
        self.path, self.values, self._written_at = path, {"total": total, "done": 0}, 0.0

    def say(self, **values: Any) -> None:
        self.values |= values
        self._written_at = time.monotonic()
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.values))
        part.replace(self.path)

    def add(self, num_bytes: int) -> None:
        self.values["done"] = min(self.values["done"] + num_bytes, self.values["total"])
        if time.monotonic() - self._written_at >= REPORT_EVERY_S:
            self.say()


class CheckpointFile(io.BufferedReader):
    """A file of a checkpoint, whose bytes are counted once `state` is set. No link is followed. Error: OSError."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)))
        self.state: UploadState | None = None

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if self.state:
            self.state.add(len(data))
        return data

    def check(self, digest: str, name: str) -> None:
        """Error: UploadRefused, if these are not the bytes that the checkpoint's manifest names."""
        sha256 = hashlib.sha256()
        while piece := self.read(READ_AT_ONCE):
            sha256.update(piece)
        self.seek(0)
        if sha256.hexdigest() != digest:
            raise UploadRefused(f"{name} does not match the checkpoint's manifest: choose another checkpoint.")


def upload(request: dict[str, Any], state: UploadState) -> str:
    """Send everything in one commit. Returns the repository's full id. Errors: UploadRefused, OSError, the hub's."""
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(token=request["hub_token"])
    folder, additions, files = Path(request["folder"]), [], []
    state.say(phase="checking the files")
    for name, entry in request["files"].items():
        file = CheckpointFile(folder / entry["path"])
        file.check(entry["sha256"], name)
        files.append((file, CommitOperationAdd(name, file)))
    for name, text in request["texts"].items():
        additions.append(CommitOperationAdd(name, text.encode()))
    state.say(phase="creating the repository")
    repo: str = api.create_repo(request["repo"], private=request["is_private"], exist_ok=True).repo_id
    if request["is_private"] and not api.model_info(repo, timeout=TIMEOUT_S).private:
        raise UploadRefused(f"{repo} exists on the hub and is public: choose another name, or allow a public one.")
    for file, addition in files:
        state.say(phase=f"sending {addition.path_in_repo}", done=state.values["done"])
        file.state = state
        api.preupload_lfs_files(repo, additions=[addition], num_threads=1)
        additions.append(addition)
    state.say(phase="committing")
    api.create_commit(repo, additions, commit_message=request["message"], num_threads=1)
    return repo


def refusal_of(error: BaseException, repo: str) -> str:
    """Why the hub did not take the files, in one sentence with what to do."""
    while status_of(error) is None and isinstance(error.__cause__, Exception):  # type: ignore[arg-type]
        error = error.__cause__
    status = status_of(error)  # type: ignore[arg-type]
    if status == 401:
        return f"{WRONG_TOKEN}."
    if status == 403:
        return f"Your Hub token may not write to {repo}: make one that may, and replace it {WHERE}."
    if status == 404:
        return f"The hub has no account or organization for {repo}, or yours does not belong to it: check the name."
    if status == 413:
        return f"The hub has no room for {repo}: delete something there, or send the adapter alone."
    reason = f"status {status}" if status else type(error).__name__
    return f"The files did not reach the hub ({reason}): check the connection and try again."


def main() -> int:
    os.environ.update(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1")  # before the hub's client loads
    request = json.load(sys.stdin)
    sizes = [(Path(request["folder"]) / entry["path"]).stat().st_size for entry in request["files"].values()]
    state = UploadState(Path(request["status"]), sum(sizes))
    try:
        repo = upload(request, state)
    except UploadRefused as error:
        state.say(ended=True, error=str(error))
        return 1
    except Exception as error:  # whatever the hub's client raises: the page says it
        state.say(ended=True, error=refusal_of(error, request["repo"]))
        return 1
    from huggingface_hub import constants

    total = state.values["total"]
    phase = f"sent {format_size(total)}"
    state.say(ended=True, done=total, phase=phase, repo=repo, url=f"{constants.ENDPOINT}/{repo}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
