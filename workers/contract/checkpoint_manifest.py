"""The manifest of a checkpoint folder, which lists its files with sizes and hashes.

checkpoints/step-000040/manifest.json   {step, agents: [{name, folder}], files: {path: {size, sha256}}}, written last
checkpoints/step-000040/agents/<index>-<slug>/   each an ordinary Hugging Face model folder

`workers.trainer.checkpoints` writes it; the web lists, verifies and serves the files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER_NAME = "checkpoints"
MANIFEST_NAME = "manifest.json"
_STEP_FOLDER = re.compile(r"step-(\d{6,})", re.ASCII)
PRECISION_FILE = "precision.json"  # in an agent's folder whose weights bfloat16 would round: see model/export.py


def needs_float32(location: str) -> bool:
    """Whether a model's folder holds the float32 sum of bfloat16 weights and a LoRA update."""
    return (Path(location) / PRECISION_FILE).is_file()


class DamagedCheckpoint(ValueError):
    """A checkpoint that does not match its manifest; the text names the file."""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint by its manifest. folders: agent -> its folder.  files: path -> {size, sha256}.  Both relative."""

    path: Path
    step: int
    folders: dict[str, str]
    files: dict[str, dict[str, Any]]

    @property
    def size_bytes(self) -> int:
        return sum(int(entry["size"]) for entry in self.files.values())

    def files_of(self, agent: str) -> dict[str, dict[str, Any]]:
        """The files of one agent's model folder, by their names in it."""
        start = f"{self.folders[agent]}/"
        return {name.removeprefix(start): entry for name, entry in self.files.items() if name.startswith(start)}

    def check_sizes(self) -> None:
        """Check that every file exists and has its size. Error: DamagedCheckpoint."""
        for name, entry in self.files.items():
            file = self.path / name
            if not file.is_file() or file.stat().st_size != entry["size"]:
                raise self.damaged(name)

    def check_bytes(self, names: Iterable[str] | None = None) -> None:
        """Check the hashes of these files, or of all. Errors: DamagedCheckpoint, OSError."""
        self.check_sizes()
        for name in self.files if names is None else names:
            if sha256(self.path / name) != self.files[name]["sha256"]:
                raise self.damaged(name)

    def damaged(self, name: str) -> DamagedCheckpoint:
        return DamagedCheckpoint(f"{self.path.name}: {name} does not match its manifest")


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint folder; all its paths stay inside the folder. Error: DamagedCheckpoint."""
    try:
        content = json.loads((path / MANIFEST_NAME).read_bytes())
        files = {
            str(name): {"size": int(e["size"]), "sha256": str(e["sha256"])} for name, e in content["files"].items()
        }
        folders = {str(entry["name"]): str(entry["folder"]) for entry in content["agents"]}
        step = int(content["step"])
        "".join((*files, *folders, *folders.values())).encode()  # refuses half a surrogate pair
    except (ValueError, KeyError, TypeError, AttributeError, OSError, OverflowError, RecursionError) as error:
        raise DamagedCheckpoint(f"{path.name}: {MANIFEST_NAME} is missing or damaged") from error
    match = _STEP_FOLDER.fullmatch(path.name)
    if match and int(match[1]) != step:
        raise DamagedCheckpoint(f"{path.name}: {MANIFEST_NAME} is of step {step}")
    for name in (*files, *folders.values()):
        if name.startswith("/") or ".." in name.split("/") or "\\" in name or not name:
            raise DamagedCheckpoint(f"{path.name}: {name!r} in {MANIFEST_NAME} leads out of the checkpoint")
    return Manifest(path, step, folders, files)


def step_folder(run_dir: Path, step: int) -> Path:
    """The checkpoint folder of a step."""
    return run_dir / FOLDER_NAME / f"step-{step:06d}"


def step_folders(root: Path) -> list[Path]:
    """Checkpoint folders, oldest first."""
    paths = root.iterdir() if root.is_dir() else ()
    matches = [(match, path) for path in paths if path.is_dir() and (match := _STEP_FOLDER.fullmatch(path.name))]
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches)]


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
