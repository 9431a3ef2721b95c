"""A small disk that a test fills up and frees."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SIZE = 48 * 2**20


def mounted(folder: Path) -> Iterator[Path]:
    """An empty file system of SIZE bytes in memory, until the generator goes on."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "hacrl-test", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {result.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Take all that is free, to the last byte."""
    with open(disk / "ballast", "wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def free(disk: Path) -> None:
    (disk / "ballast").unlink()
