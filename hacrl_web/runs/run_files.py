"""What the files of a run take on the disk."""

from __future__ import annotations

import os

from workers.contract.trainer_log import allocated_bytes

MAX_FILES = 20_000


def folder_bytes(folder: str) -> int | None:
    """What the files below take, holes not counted, links not followed; None where there is no such folder here."""
    if not os.path.isdir(folder):
        return None
    total = num_files = 0
    for place, _, names in os.walk(folder):
        for name in names:
            num_files += 1
            try:
                total += allocated_bytes(os.lstat(os.path.join(place, name)))
            except OSError:  # gone meanwhile
                continue
            if num_files >= MAX_FILES:
                return total
    return total
