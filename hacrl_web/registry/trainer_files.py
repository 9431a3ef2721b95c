"""Rows whose newest version lies in a file that trainers read, and that settings name: reward functions and judges."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from hacrl_web.registry.models import Judge, RewardFunction

RowT = TypeVar("RowT", Judge, RewardFunction)


def named_rows(kind: type[RowT], names: Sequence[str], project: Any) -> dict[str, RowT]:
    """The rows of a project by name or id; one that is not there is left out."""
    rows: dict[str, RowT] = {}
    for name in names:
        query = {"pk": int(name)} if name.isascii() and name.isdigit() and len(name) < 19 else {"name": name}
        row = kind.objects.filter(project=project, **query).first()
        if row is not None:
            rows[name] = row
    return rows


def write_at_once(path: Path, text: str) -> Path:
    """Write a file so that each reader finds the former text or the whole new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path
