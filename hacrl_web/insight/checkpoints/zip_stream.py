"""An agent's model folder as a zip archive that is sent while it is read: no temporary file, little memory.

Stored, not deflated: weights do not get smaller. A file whose bytes are not those of the manifest breaks the archive
off before its end, so that no damaged model arrives as a whole one.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from collections.abc import Iterator

from workers.contract.checkpoint_manifest import Manifest

CHUNK_BYTES = 2**20


class _Sink(io.RawIOBase):
    """What zipfile writes to: keeps it until it is taken, and cannot seek, as a socket cannot."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> bytes:
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content


def zip_of_agent(manifest: Manifest, agent: str, folder: str) -> Iterator[bytes]:
    """The archive's bytes, its files inside `folder`. Errors, also amid it: OSError, DamagedCheckpoint."""
    sink = _Sink()
    when = time.gmtime()[:6]
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, entry in manifest.files_of(agent).items():
            info = zipfile.ZipInfo(f"{folder}/{name}", date_time=when)
            info.external_attr = 0o644 << 16
            digest = hashlib.sha256()
            # No link is followed: the archive holds what lies in the checkpoint.
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
