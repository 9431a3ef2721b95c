"""The names of the tasks of lm-evaluation-harness on this host, as its installation wrote them."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from workers.contract.spec.harness import HARNESS

MAX_CATALOGUE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Catalogue:
    """The tasks of the installed harness. version: empty where it is not installed on this host."""

    version: str
    tasks: frozenset[str]

    def problem_of(self, name: str, *, has_hint: bool = True) -> str:
        """Why there is no such task; empty if there is one, or without a catalogue. has_hint: with similar names."""
        if not self.version or name in self.tasks:
            return ""
        similar = difflib.get_close_matches(name, sorted(self.tasks), 3) if has_hint else []
        hint = f": did you mean {' or '.join(similar)}?" if similar else "."
        return f"{HARNESS} {self.version} has no task {name!r}{hint}"

    def search(self, part: str) -> list[str]:
        """The names that contain `part` in any case, those that begin with it first, short ones before long ones."""
        part = part.lower()
        matches = [name for name in self.tasks if part in name.lower()]
        return sorted(matches, key=lambda name: (not name.lower().startswith(part), len(name), name))


def installed_catalogue() -> Catalogue:
    """That of this host; an empty one if it was written for another Python than the present one."""
    path = Path(settings.LM_EVAL_CATALOGUE)
    try:
        stamp = path.stat()
    except OSError:
        return Catalogue("", frozenset())
    return _read_catalogue(path, stamp.st_mtime_ns, stamp.st_size, str(settings.LM_EVAL_PYTHON))


@lru_cache(maxsize=2)
def _read_catalogue(path: Path, changed_ns: int, size: int, python: str) -> Catalogue:
    none = Catalogue("", frozenset())
    if size > MAX_CATALOGUE_BYTES or not os.access(python, os.X_OK):
        return none
    try:
        content = json.loads(path.read_bytes())
        if content["python"] != python:
            return none
        return Catalogue(str(content["version"]), frozenset(map(str, content["tasks"])))
    except (OSError, ValueError, KeyError, TypeError):
        return none
