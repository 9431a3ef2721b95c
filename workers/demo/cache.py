"""A demo's files: made once, checked by their digests, and replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workers.contract.demo_recipe import RECIPE_FILE


def is_valid(folder: Path, identity: Mapping[str, Any]) -> bool:
    """Whether a folder holds the undamaged files of this recipe."""
    try:
        recipe = json.loads((folder / RECIPE_FILE).read_text(encoding="utf-8"))
        if any(recipe.get(key) != value for key, value in identity.items()):
            return False
        return all(_digest(folder / name) == digest for name, digest in recipe["files"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def make_once(folder: Path, identity: Mapping[str, Any], make: Callable[[Path], None]) -> bool:
    """Let `make` write all files to a temporary folder, which then gets its name; False if they are there already.

    identity: what decides the files, such as the seed.
    """
    if is_valid(folder, identity):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        content = temporary / "content"
        content.mkdir()
        make(content)
        files = {str(path.relative_to(content)): _digest(path) for path in sorted(content.rglob("*")) if path.is_file()}
        recipe = {**identity, "files": files}
        (content / RECIPE_FILE).write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            os.rename(folder, temporary / "replaced")
        os.rename(content, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
