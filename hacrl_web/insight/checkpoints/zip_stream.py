"""An agent's model folder as a zip archive that is sent while it is read: no temporary file, little memory.

Files are stored, not deflated: weights hardly compress. If a file does not match the manifest, the archive breaks
off before its end, so that it cannot be opened.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from collections.abc import Iterator, Mapping

from workers.contract.checkpoint_manifest import Manifest

CHUNK_BYTES = 2**20


class PieceSink(io.RawIOBase):
    """A file for zipfile that collects what it writes; like a socket, it cannot seek."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> bytes:
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content


def zip_of_agent(
    manifest: Manifest, agent: str, folder: str, texts: Mapping[str, str] | None = None
) -> Iterator[bytes]:
    """The archive's bytes, its files inside `folder`; texts: further files by name, unless the agent has such a file.

    Errors, at any time: OSError, DamagedCheckpoint.
    """
    sink = PieceSink()
    when = time.gmtime()[:6]
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        files = manifest.files_of(agent)
        for name, text in (texts or {}).items():
            if name not in files:
                info = zipfile.ZipInfo(f"{folder}/{name}", date_time=when)
                info.external_attr = 0o644 << 16
                archive.writestr(info, text)
        for name, entry in files.items():
            info = zipfile.ZipInfo(f"{folder}/{name}", date_time=when)
            info.external_attr = 0o644 << 16
            digest = hashlib.sha256()
            # No link is followed: the archive holds files of the checkpoint only.
            descriptor = os.open(manifest.path / manifest.folders[agent] / name, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file, archive.open(info, "w", force_zip64=True) as target:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
                    target.write(chunk)
                    yield sink.take()
            if digest.hexdigest() != entry["sha256"]:
                raise manifest.damaged(name)
            yield sink.take()
    yield sink.take()
