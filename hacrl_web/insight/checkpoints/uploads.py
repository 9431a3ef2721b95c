"""Uploads of trained agents to the hub: each a process of its own, whose state is a file in the run's folder.

The process (workers.hub.upload) outlives the request and the web's own process. Its token goes to its standard input,
so it is in no argument, environment, file or log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from hacrl_web.accounts.audit_log import note_change
from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import require
from hacrl_web.insight.checkpoints.background import BackgroundJob, jobs_in, start_job
from hacrl_web.insight.checkpoints.model_card import FILE_NAME, SUMS_NAME, model_card, sums_of, texts_without_paths
from hacrl_web.registry.hub_tokens import usable_hub_token
from hacrl_web.runs.models import Run
from hacrl_web.runs.run_files import reading_files
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.schemas import EVERY_FIELD
from workers.contract.checkpoint_manifest import Manifest

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
    user: Any, run: Run, manifest: Manifest, agent: str, *, repo: str, content: str, is_private: bool
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
    source = manifest.path / manifest.folders[agent]
    texts = texts_without_paths(source, files)
    texts[FILE_NAME] = model_card(run, agent, manifest.step, repo.rpartition("/")[2], place=repo)
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
    key = _start(run, facts, request)
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


def _start(run: Run, facts: Mapping[str, Any], request: dict[str, Any]) -> str:
    """Start the process, which keeps retention from the files to its end; returns the upload's key."""
    with reading_files(run) as lock:
        return start_job(run.run_dir / FOLDER, "workers.hub.upload", facts, request, lock=lock)


def uploads_of(run: Run) -> list[Upload]:
    """The newest uploads of a run from this host, the newest first."""
    return [_upload(job) for job in jobs_in(run.run_dir / FOLDER, MAX_LISTED)]


def _upload(job: BackgroundJob) -> Upload:
    facts, state = job.facts, job.state
    return Upload(
        key=job.key,
        step=int(facts["step"]),
        agent=str(facts["agent"]),
        repo=str(state.get("repo") or facts["repo"]),
        content=CONTENTS.get(str(facts["content"]), ""),
        is_private=bool(facts["is_private"]),
        phase=str(state.get("phase", "starting")),
        done=int(state.get("done", 0)),
        total=int(state.get("total", 0)),
        error=str(state.get("error", "")) or ("" if state.get("ended") or job.is_alive else _STOPPED),
        url=str(state.get("url", "")),
        is_running=job.is_running,
    )


def proposed_repo(run: Run, agent: str) -> str:
    """A name for a repository of the user's own account."""
    words = f"{PurePath(agent).name} {run.algorithm}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:60] or "agent"
