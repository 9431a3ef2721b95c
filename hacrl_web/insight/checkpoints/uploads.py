"""Uploads of trained agents to the hub: each a process of its own, whose state is a file in the run's folder.

The process (workers.hub.upload) outlives the request and the web's own process. Its token goes to its standard input,
so it is in no argument, environment, file or log.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from hacrl_web.accounts.audit.audit_log import note_change
from hacrl_web.accounts.models import Role, User
from hacrl_web.accounts.roles.projects import require
from hacrl_web.insight.checkpoints.model_card import (
    FILE_NAME,
    SUMS_NAME,
    model_card,
    precision_of,
    sums_of,
    texts_without_paths,
)
from hacrl_web.ops.disk_space import check_room
from hacrl_web.registry.hub_tokens.service import usable_hub_token
from hacrl_web.runs.models import Run
from hacrl_web.runs.storage.run_files import reading_files
from hacrl_web.runs.worker.hosts import process_start
from hacrl_web.runs.worker.trainer_environment import trainer_environment
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.schemas import EVERY_FIELD
from workers.contract.checkpoint_manifest import Manifest
from workers.contract.repository import ROOT

FOLDER = "uploads"  # in the run's folder
ADAPTER = "adapter/"  # in an agent's folder
MAX_LISTED = 20
CONTENTS = {"merged": "the whole model", "adapter": "the LoRA adapter alone", "all": "both"}
Content = Literal["merged", "adapter", "all"]
_REPO = re.compile(r"([A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_STOPPED = "The upload ended without an answer: start it again; what has arrived is not sent twice."


@dataclass
class Upload:
    """One upload. phase: what it does, in words.  done, total: bytes.  url: of the repository, once it is there."""

    __pydantic_config__ = EVERY_FIELD
    key: str
    step: int
    agent: str
    repo: str
    content: str
    is_private: bool
    phase: str
    done: int
    total: int
    error: str
    url: str
    is_running: bool

    @property
    def percent(self) -> int:
        return 100 * self.done // self.total if self.total else 0


def start_upload(
    user: User, run: Run, manifest: Manifest, agent: str, *, repo: str, content: str, is_private: bool
) -> Upload:
    """Send an agent of a checkpoint to the hub, in the background. Error: FieldErrors, and nothing is sent."""
    require(user, run.project, Role.MEMBER)
    repo = repo.strip()
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo or repo.endswith((".git", ".", "-")):
        message = "Give a repository as OWNER/NAME, or NAME for your own account: letters, digits, dots and dashes."
        raise FieldErrors.single("invalid", message, "repo")
    if content not in CONTENTS:
        raise FieldErrors.single("invalid", f"Must be one of {', '.join(CONTENTS)}.", "content")
    files = _files(manifest, agent, content)
    if any(one.is_running for one in uploads_of(run)):
        raise FieldErrors.single("busy", "An upload of this run is under way: wait for its end.", status=409)
    token = usable_hub_token(user, run.project)
    if not token:
        message = "There is no Hub token: set one on the Account page or the project's page (Hub token)."
        raise FieldErrors.single("no_token", message, "repo", status=409)
    facts = {"step": manifest.step, "agent": agent, "repo": repo, "content": content, "is_private": is_private}
    with reading_files(run) as lock:  # keeps retention from the files to the upload's end
        source = manifest.path / manifest.folders[agent]
        texts = texts_without_paths(source, files)
        texts[FILE_NAME] = model_card(run, agent, manifest.step, repo.rpartition("/")[2], repo, precision_of(source))
        sent = {name: entry for name, entry in files.items() if name not in texts}
        texts[SUMS_NAME] = sums_of({name: str(entry["sha256"]) for name, entry in sent.items()}, texts)
        request = {
            "hub_token": token,
            "repo": repo,
            "is_private": is_private,
            "folder": str(source),
            "files": sent,
            "texts": texts,
            "message": f"{agent} of {run.name}, step {manifest.step}",
        }
        key = start_job(run.run_dir / FOLDER, "workers.hub.upload", facts, request, lock=lock)
    note_change("push", run, hub_repository=repo, step=manifest.step, agent=agent, private=is_private)
    return next(one for one in uploads_of(run) if one.key == key)


def _files(manifest: Manifest, agent: str, content: str) -> dict[str, dict[str, Any]]:
    """The files to send by their paths in the repository. Error: FieldErrors."""
    files = {name: {**entry, "path": name} for name, entry in manifest.files_of(agent).items()}
    adapter = {name: entry for name, entry in files.items() if name.startswith(ADAPTER)}
    if content != "merged" and not adapter:
        raise FieldErrors.single("no_adapter", f"{agent} was not trained with LoRA: send the whole model.", "content")
    if content == "adapter":
        return {name.removeprefix(ADAPTER): entry for name, entry in adapter.items()}
    return files if content == "all" else {name: entry for name, entry in files.items() if name not in adapter}


def start_job(
    folder: Path, module: str, facts: Mapping[str, Any], request: dict[str, Any], lock: int | None = None
) -> str:
    """Start `python -m module`, which outlives the request and reads `request` with `status` from stdin.

    Returns the job's key: `KEY.json` in the folder holds the facts, `KEY.state` what the process says of itself.
    lock: a descriptor of a locked file, which the process keeps open to its end.  Error: FieldErrors (507), if a disk
    is full.
    """
    check_room()
    folder.mkdir(mode=0o700, exist_ok=True)
    key = f"{time.time_ns():020d}-{secrets.token_hex(4)}"  # later keys are greater
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=folder,
        env=trainer_environment() | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=() if lock is None else (lock,),
    )
    facts = {**facts, "pid": process.pid, "started": process_start(process.pid) or 0.0}
    (folder / f"{key}.json").write_text(json.dumps(facts))
    assert process.stdin
    with suppress(BrokenPipeError):  # it ended at once, which the list says
        process.stdin.write(json.dumps(request | {"status": str(folder / f"{key}.state")}).encode())
        process.stdin.close()
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie stays
    return key


def uploads_of(run: Run) -> list[Upload]:
    """The newest uploads of a run from this host, the newest first."""
    paths = sorted((run.run_dir / FOLDER).glob("*.json"), reverse=True)[:MAX_LISTED]
    return [_upload(path, facts) for path in paths if (facts := _object(path))]


def _upload(path: Path, facts: dict[str, Any]) -> Upload:
    is_alive = process_start(int(facts["pid"])) == facts["started"]
    state = _object(path.with_suffix(".state"))  # after the look at the process, which writes its state last
    return Upload(
        key=path.stem,
        step=int(facts["step"]),
        agent=str(facts["agent"]),
        repo=str(state.get("repo") or facts["repo"]),
        content=CONTENTS.get(str(facts["content"]), ""),
        is_private=bool(facts["is_private"]),
        phase=str(state.get("phase", "starting")),
        done=int(state.get("done", 0)),
        total=int(state.get("total", 0)),
        error=str(state.get("error", "")) or ("" if state.get("ended") or is_alive else _STOPPED),
        url=str(state.get("url", "")),
        is_running=is_alive and not state.get("ended"),
    )


def _object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def proposed_repo(run: Run, agent: str) -> str:
    """A name for a repository of the user's own account."""
    words = f"{PurePath(agent).name} {run.algorithm}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:60] or "agent"
