"""Checks where a model or data set comes from: a path below an allowed root, or a hub id. Opens no file.

Each function returns the checked value, or raises FieldErrors at its field.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from django.conf import settings

from hacrl_web.web.errors import FieldErrors

MAX_LOCATION = 1000
MAX_FILES = 10_000  # at all depths
HUB_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
HUB_ID = re.compile(rf"{HUB_PART}/{HUB_PART}", re.ASCII)
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}", re.ASCII)


def refuse_location(code: str, message: str, field: str = "location") -> FieldErrors:
    return FieldErrors.single(code, message, field)


def model_roots() -> list[Path]:
    """The folders that may contain local models, with symbolic links resolved."""
    return [Path(os.path.realpath(root)) for root in settings.MODEL_ROOTS]


def checked_folder(location: str) -> Path:
    """The resolved folder of a local model; it and its entries are inside an allowed root."""
    folder, mode = _checked_place(location)
    if not stat.S_ISDIR(mode):
        raise refuse_location("not_a_folder", "This is not a folder. Give the folder that holds config.json.")
    _check_entries(folder)
    return folder


def checked_file_or_folder(location: str) -> Path:
    """The resolved path of a data set's local copy, inside an allowed root."""
    place, mode = _checked_place(location)
    if stat.S_ISDIR(mode):
        _check_entries(place)
    elif not stat.S_ISREG(mode):
        raise refuse_location("not_a_file", "This is neither a file nor a folder.")
    return place


def _checked_place(location: str) -> tuple[Path, int]:
    """A resolved path inside an allowed root, and its mode."""
    text = location.strip()
    roots = ", ".join(str(root) for root in model_roots())
    if not text:
        raise refuse_location("missing", f"Give the absolute path. Allowed folders: {roots}.")
    if len(text) > MAX_LOCATION:
        raise refuse_location("too_long", f"The path is longer than {MAX_LOCATION} characters.")
    if not text.isprintable() or "\\" in text:
        raise refuse_location("bad_path", "The path contains a control character or a backslash.")
    if "://" in text or not text.startswith("/"):
        raise refuse_location("not_absolute", f"Give an absolute path, beginning with /. Allowed folders: {roots}.")
    if ".." in text.split("/"):
        raise refuse_location("bad_path", "The path must not contain '..'.")
    place = Path(os.path.realpath(text))
    if not any(place.is_relative_to(root) for root in model_roots()):
        if place.is_relative_to(Path(os.path.realpath(settings.RUNS_DIR))):
            message = "This folder belongs to a run: use Promote on its Checkpoints tab to make the checkpoint a model."
            raise refuse_location("of_a_run", message)
        # Before any access to the path, so that the answer tells nothing about files outside the roots.
        raise refuse_location("outside", f"This is not inside the model folders. Allowed folders: {roots}.")
    try:
        return place, place.stat().st_mode
    except FileNotFoundError:
        raise refuse_location("no_such_folder", "There is no such file or folder.") from None
    except OSError as error:
        raise refuse_location("unreadable", f"This cannot be read: {error.strerror}.") from None


def _check_entries(folder: Path) -> None:
    """Check that links stay inside the roots, at any depth, and that all entries are files or folders."""
    roots, waiting, visited, number = model_roots(), [str(folder)], {folder}, 0
    try:
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    number += 1
                    if number > MAX_FILES:
                        raise refuse_location(
                            "too_many_files", f"The folder contains more than {MAX_FILES:,} files: it is not a model."
                        )
                    name, target = os.path.relpath(entry.path, folder), Path(os.path.realpath(entry.path))
                    if not any(target.is_relative_to(root) for root in roots):
                        raise refuse_location("outside", f"{name!a} links to a place outside the model folders.")
                    mode = os.stat(target).st_mode
                    if stat.S_ISDIR(mode) and target not in visited:
                        visited.add(target)
                        waiting.append(entry.path)
                    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                        raise refuse_location("not_a_file", f"{name!a} is neither a file nor a folder.")
    except OSError as error:
        raise refuse_location("unreadable", f"The folder cannot be read: {error.strerror}.") from None


def is_unchanged(folder: Path, fingerprint: str) -> bool:
    """Whether a folder is as it was; fingerprints of earlier versions are of its first level only."""
    return fingerprint in (folder_fingerprint(folder), _fingerprint(_files_in(folder)))


def folder_fingerprint(folder: Path) -> str:
    """A digest of names, sizes and times of all files below: it changes if one is replaced, added or removed."""
    files, visited = _files_in(folder), set()
    for place, folders, _ in os.walk(folder, followlinks=True):
        folders.sort()
        visited.add(os.path.realpath(place))
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(place, name)) not in visited]
        if place != str(folder):
            files += [(os.path.relpath(os.path.join(place, name), folder), entry) for name, entry in _files_in(place)]
    return _fingerprint(files)


def _files_in(folder: Path | str) -> list[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        return sorted((entry.name, entry) for entry in entries if entry.is_file())


def _fingerprint(files: list[tuple[str, os.DirEntry[str]]]) -> str:
    digest = hashlib.sha256()
    for name, entry in files:
        status = entry.stat()
        digest.update(f"{name!a} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def checked_hub_id(location: str) -> str:
    """A hub id, owner/name; it is never used as a path."""
    text = location.strip()
    if not HUB_ID.fullmatch(text) or ".." in text or "--" in text or text.endswith(".git"):
        raise refuse_location(
            "bad_hub_id",
            "A hub id is owner/name: one slash, and the letters A to Z, digits, '-', '_' and '.' in each part.",
        )
    return text


def checked_revision(revision: str) -> str:
    """A branch, tag or commit; empty: the hub's default branch."""
    text = revision.strip()
    parts = text.split("/")
    if text and (not REVISION.fullmatch(text) or ".." in text or any(not part or part[0] == "." for part in parts)):
        raise refuse_location(
            "bad_revision",
            "A revision is a branch, tag or commit: letters A to Z, digits, '.', '_', '-' and '/', no '..'.",
            "revision",
        )
    return text
