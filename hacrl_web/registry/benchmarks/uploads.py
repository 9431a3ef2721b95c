"""Staged question files: each upload has its own folder until a benchmark is created from it, or for an hour.

A staged folder belongs to one user: its name contains the user's id, so other users' requests do not find it.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from hacrl_web.accounts.models import User
from hacrl_web.ops.disk_space import check_room, disk_error
from hacrl_web.web.errors import FieldErrors

MAX_UPLOAD_BYTES = 256 * 2**20
MAX_STAGED = 3  # of one user
STAGING_PREFIX = ".incoming-"
NOTES = "notes.json"
PROGRESS = "progress.json"
STALE_S = 3600
SUFFIXES = (".jsonl", ".json", ".txt", ".csv", ".tsv", ".parquet")
_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass
class Staged:
    """Question files that are not yet a benchmark, and their contents."""

    folder: Path
    train: list[dict[str, str]] = field(default_factory=list)  # path on this machine, the user's name of the file
    held_out: list[dict[str, str]] = field(default_factory=list)
    source: str = ""  # as shown on the benchmark's page
    name: str = ""  # proposed for the benchmark
    found: dict[str, Any] = field(default_factory=dict)  # columns, rows, guess
    is_evaluation_only: bool = False
    edit_of: int | None = None  # id of the benchmark whose questions these are

    @property
    def token(self) -> str:
        return self.folder.name.rpartition("-")[2]

    def note(self) -> None:
        """Write notes for the next request."""
        notes = {key: value for key, value in vars(self).items() if key != "folder"}
        (self.folder / NOTES).write_text(json.dumps(notes))

    def progress(self) -> dict[str, Any]:
        """The last progress report of the child process; empty before the first."""
        progress: dict[str, Any] = {}
        with suppress(OSError, ValueError):  # missing, or being written
            progress = json.loads((self.folder / PROGRESS).read_bytes())
        return progress

    def discard(self) -> None:
        discard(self.folder)


def _folder_name(owner: User, token: str) -> str:
    return f"{STAGING_PREFIX}{owner.pk}-{token}"


def stage(owner: User) -> Staged:
    """Create a folder beside the benchmarks; delete stale ones, and the oldest of this user beyond MAX_STAGED.

    Error: FieldErrors (507), if a disk is full.
    """
    check_room("file")
    settings.BENCHMARKS_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep()
    # A folder without notes is still being filled by another request of this user.
    own = [notes.parent for notes in settings.BENCHMARKS_DIR.glob(f"{_folder_name(owner, '*')}/{NOTES}")]
    own.sort(key=_changed_at)
    for old in own[: len(own) - MAX_STAGED + 1]:
        discard(old)
    folder = settings.BENCHMARKS_DIR / _folder_name(owner, secrets.token_hex(16))
    folder.mkdir(mode=0o700)
    return Staged(folder)


@contextmanager
def staging(owner: User) -> Iterator[Staged]:
    """A new staged folder, which is deleted if the block fails."""
    staged = stage(owner)
    try:
        yield staged
    except BaseException:
        staged.discard()
        raise


def find_upload(owner: User, token: str) -> Staged | None:
    """This user's staged files of this token, or None."""
    if not _TOKEN.fullmatch(token):
        return None
    folder = settings.BENCHMARKS_DIR / _folder_name(owner, token)
    try:
        notes = json.loads((folder / NOTES).read_bytes())
    except (OSError, ValueError):
        return None
    return Staged(folder, **notes)


@contextmanager
def still_there(staged: Staged) -> Iterator[None]:
    """If the block fails because another request used or discarded the files, report that. Error: FieldErrors."""
    try:
        yield
    except (FieldErrors, OSError):
        if (staged.folder / NOTES).is_file():
            raise
        message = "These files are no longer here: another tab has used or discarded them. Upload them again."
        raise FieldErrors.single("gone", message, status=409) from None


def newest(owner: User) -> Staged | None:
    """This user's folder that changed last."""
    own = settings.BENCHMARKS_DIR.glob(_folder_name(owner, "*"))
    folder = max(own, key=_changed_at, default=None)
    return Staged(folder) if folder else None


def discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _changed_at(folder: Path) -> float:
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime
    return 0.0


def _sweep() -> None:
    """Delete abandoned folders, and those that killed processes left behind."""
    for folder in settings.BENCHMARKS_DIR.glob(f"{STAGING_PREFIX}*"):
        if time.time() - _changed_at(folder) > STALE_S:
            discard(folder)


def store(upload: UploadedFile, staged: Staged, side: str, field_name: str) -> None:
    """Copy an upload into the staged folder. Error: FieldErrors if it is too large or the disk is full."""
    name = "".join(letter for letter in upload.name or "" if letter.isprintable())[:80] or "the file"
    suffix = Path(name).suffix.lower()
    path = staged.folder / f"{side}-0{suffix if suffix in SUFFIXES else '.jsonl'}"
    written = 0
    try:
        with open(path, "xb") as file:
            for chunk in upload.chunks():
                written += len(chunk)
                if written > MAX_UPLOAD_BYTES:
                    message = f"The file is larger than {MAX_UPLOAD_BYTES // 2**20} MiB, the most that is allowed."
                    raise FieldErrors.single("too_large", message, field_name)
                file.write(chunk)
    except OSError as error:
        full = disk_error(error)
        message = full.text if full else f"The file could not be stored: {error.strerror}."
        raise FieldErrors.single("not_stored", message, field_name, status=507) from None
    getattr(staged, side).append({"path": str(path), "name": name})


def copy_in(source: Path, staged: Staged, side: str) -> None:
    """Copy a question file of a benchmark into the staged folder. Error: FieldErrors."""
    path = staged.folder / f"{side}-0.jsonl"
    try:
        shutil.copyfile(source, path)
    except OSError as error:
        message = f"The question files of this benchmark cannot be copied: {error.strerror}."
        raise FieldErrors.single("not_copied", message, "benchmark", status=409) from None
    getattr(staged, side).append({"path": str(path), "name": source.name})


def keep(source: Path, folder: Path) -> None:
    """Move a finished folder to its place. A leftover there has no row, because its writer died before the commit."""
    discard(folder)
    source.rename(folder)
