"""Archives that are sent while they are read: no temporary file, little memory.

Weights are stored, not deflated: they hardly compress. If a file does not match its manifest, the archive breaks off
before its end, so that it cannot be opened.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from workers.contract.checkpoint_manifest import Manifest

CHUNK_BYTES = 2**20


class PieceSink(io.RawIOBase):
    """A file that gives away what was written to it; like a socket, it cannot seek."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._pieces.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content


def file_pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file. Links are not followed: an archive holds a run's own files only. Error: OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def zipped(members: Iterable[tuple[str, Iterable[bytes]]]) -> Iterator[bytes]:
    """The archive's bytes. members: name and content. Errors, at any time: those of a content."""
    sink = PieceSink()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, pieces in members:
            info = zipfile.ZipInfo(name, date_time=time.gmtime()[:6])
            info.compress_type = zipfile.ZIP_STORED if name.endswith(".safetensors") else zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as target:
                for piece in pieces:
                    target.write(piece)
                    yield sink.take()
            yield sink.take()
    yield sink.take()


def zip_of_agent(
    manifest: Manifest, agent: str, folder: str, texts: Mapping[str, str] | None = None
) -> Iterator[bytes]:
    """The files of an agent inside `folder`. texts: further files by name, unless the agent has such a file.

    Errors, at any time: OSError, DamagedCheckpoint.
    """
    files = manifest.files_of(agent)

    def checked(name: str, sha256: str) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for piece in file_pieces(manifest.path / manifest.folders[agent] / name):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != sha256:
            raise manifest.damaged(name)

    further = [(f"{folder}/{name}", [text.encode()]) for name, text in (texts or {}).items() if name not in files]
    return zipped([*further, *((f"{folder}/{name}", checked(name, e["sha256"])) for name, e in files.items())])
