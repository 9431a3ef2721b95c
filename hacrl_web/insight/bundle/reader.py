"""Reads a bundle that somebody else may have made: every limit is checked before bytes are unpacked or stored.

Only the names of layout.py are accepted, so no member has a path of its own; links, encrypted members and other
compressions are refused; each member must have the size and checksum of the manifest.
"""

from __future__ import annotations

import hashlib
import json
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ValidationError

from hacrl_web.insight.bundle.layout import (
    CHECKPOINT_FILE,
    EVENTS_NAME,
    HELD_OUT_NAME,
    MANIFEST_NAME,
    OUTPUT_NAME,
    RUN_NAME,
    TRAIN_NAME,
    VERSION,
    BundleManifest,
    RunFile,
)
from hacrl_web.insight.checkpoints.checkpoints import MAX_BUNDLE_BYTES
from hacrl_web.runs.telemetry.tables import clean_texts
from hacrl_web.web.errors import FieldErrors, plain_errors

MAX_MEMBERS = 5000
MAX_DIRECTORY_BYTES = 2**20
MAX_CHECKPOINT_BYTES = 64 * 2**30
MAX_LINE_BYTES = 16 * 2**20
CHUNK_BYTES = 2**20
# Bytes of each member once unpacked.
MOST_OF = {
    MANIFEST_NAME: 2 * 2**20,
    RUN_NAME: 32 * 2**20,
    EVENTS_NAME: 8 * 2**30,
    OUTPUT_NAME: 64 * 2**20,
    TRAIN_NAME: 256 * 2**20,
    HELD_OUT_NAME: 256 * 2**20,
}
NEEDED = (RUN_NAME, EVENTS_NAME)
PartT = TypeVar("PartT", bound=BaseModel)


def bundle_refusal(message: str, code: str = "bad_bundle") -> FieldErrors:
    return FieldErrors.single(code, message, "file")


class Bundle:
    """An opened bundle whose members all match its manifest."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._members = _checked_members(archive)
        self.manifest = self._part(MANIFEST_NAME, BundleManifest)
        if self.manifest.version != VERSION:
            raise bundle_refusal(
                f"The bundle has version {self.manifest.version}; this installation reads version {VERSION}."
            )
        self._check_names()
        self._check_bytes()
        self.content = self._part(RUN_NAME, RunFile)
        if self.content.run.id != self.manifest.run:
            raise bundle_refusal(f"{RUN_NAME} and {MANIFEST_NAME} are of different runs.")

    @property
    def checkpoint_files(self) -> list[str]:
        return [name for name in self._members if CHECKPOINT_FILE.fullmatch(name)]

    @property
    def checkpoint_bytes(self) -> int:
        return sum(self._members[name].file_size for name in self.checkpoint_files)

    @property
    def file_bytes(self) -> int:
        """The bytes of the files that an import unpacks."""
        return self.checkpoint_bytes + (self._members[OUTPUT_NAME].file_size if self.has(OUTPUT_NAME) else 0)

    def has(self, name: str) -> bool:
        return name in self._members

    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a member. Error: FieldErrors if it is damaged."""
        try:
            with self._archive.open(self._members[name]) as file:
                while piece := file.read(CHUNK_BYTES):
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            raise bundle_refusal(f"{name} is damaged: {str(error)[:200]}.") from None

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(number of the line, event) of events.jsonl. Error: FieldErrors."""
        number, rest = 0, b""
        for piece in self.pieces(EVENTS_NAME):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                number += 1
                yield number, _record(line, number)
            if len(rest) > MAX_LINE_BYTES:
                raise bundle_refusal(
                    f"Line {number + 1} of {EVENTS_NAME} is longer than {MAX_LINE_BYTES // 2**20} MiB."
                )
        if rest:
            raise bundle_refusal(f"The last line of {EVENTS_NAME} is cut off.")

    def _part(self, name: str, kind: type[PartT]) -> PartT:
        if name not in self._members:
            raise bundle_refusal(f"This is not a bundle of a run: {name} is missing.")
        try:
            return kind.model_validate(clean_texts(_parsed(b"".join(self.pieces(name)))))
        except ValidationError as error:
            first = plain_errors(error)[0]
            raise bundle_refusal(f"{name}, {first.field}: {first.message}") from None
        except (ValueError, RecursionError):
            raise bundle_refusal(f"{name} is not valid JSON.") from None

    def _check_names(self) -> None:
        listed, there = set(self.manifest.files), set(self._members) - {MANIFEST_NAME}
        if listed != there:
            name = min(listed ^ there)
            what = "is not in its manifest" if name in there else "is missing from it"
            raise bundle_refusal(f"The bundle is incomplete or was changed: {name[:100]!r} {what}.")
        if missing := [name for name in NEEDED if name not in there]:
            raise bundle_refusal(f"This is not a bundle of a run: {missing[0]} is missing.")

    def _check_bytes(self) -> None:
        for name, entry in self.manifest.files.items():
            digest, size = hashlib.sha256(), 0
            for piece in self.pieces(name):
                digest.update(piece)
                size += len(piece)
            if (size, digest.hexdigest()) != (entry.size, entry.sha256):
                raise bundle_refusal(f"{name} does not match the checksum of the manifest: export the run again.")


@contextmanager
def open_bundle(file: IO[bytes], size: int) -> Iterator[Bundle]:
    """A bundle in a file of this size that can be sought. Error: FieldErrors."""
    if size > MAX_BUNDLE_BYTES:
        raise bundle_refusal(
            f"The file is larger than {MAX_BUNDLE_BYTES // 2**30} GiB, the most that is allowed.", "too_large"
        )
    if directory_bytes(file, size) > MAX_DIRECTORY_BYTES:
        raise bundle_refusal(f"The file has more than {MAX_MEMBERS:,} members.")
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        raise bundle_refusal("This is not a ZIP file, or it is cut off.") from None
    with archive:
        yield Bundle(archive)


def directory_bytes(file: IO[bytes], size: int) -> int:
    """Bytes of the list of members, which zipfile reads as a whole. Error: FieldErrors without one."""
    begin = max(0, size - 2**16 - 22)
    file.seek(begin)
    tail = file.read(2**16 + 22)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise bundle_refusal("This is not a ZIP file, or it is cut off.")
    (length,) = struct.unpack_from("<L", tail, end + 12)
    if end >= 20 and tail[end - 20 : end - 16] == b"PK\x06\x07":  # the list of a large file
        (place,) = struct.unpack_from("<Q", tail, end - 12)
        before = begin + end - 20 - 56  # where zipfile reads it, wherever the file says that it is
        file.seek(max(0, before))
        record = file.read(56)
        if place != before or record[:4] != b"PK\x06\x06":
            raise bundle_refusal("This is not a ZIP file, or it is cut off.")
        length = max(length if length != 0xFFFFFFFF else 0, struct.unpack_from("<Q", record, 40)[0])
    return int(length)


def _checked_members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise bundle_refusal(f"The file has more than {MAX_MEMBERS:,} members.")
    for info in infos:
        name = info.filename
        if name not in MOST_OF and not CHECKPOINT_FILE.fullmatch(name):
            raise bundle_refusal(f"A bundle has no member named {name[:100]!r}.")
        if name in members:
            raise bundle_refusal(f"{name!r} is there twice.")
        if stat.S_ISLNK(info.external_attr >> 16) or info.flag_bits & 0x1:
            raise bundle_refusal(f"{name!r} is a link or encrypted: neither is allowed.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise bundle_refusal(f"{name!r} has a compression other than deflate.")
        if info.file_size > MOST_OF.get(name, MAX_CHECKPOINT_BYTES):
            raise bundle_refusal(f"{name!r} is too large once unpacked.", "too_large")
        members[name] = info
    if sum(info.file_size for name, info in members.items() if name not in MOST_OF) > MAX_CHECKPOINT_BYTES:
        raise bundle_refusal("The checkpoints are too large once unpacked.", "too_large")
    return members


def _parsed(data: bytes) -> Any:
    """JSON without NaN and infinity. Error: ValueError, RecursionError."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(data, parse_constant=refuse)


def _record(line: bytes, number: int) -> dict[str, Any]:
    try:
        record = clean_texts(_parsed(line))
    except (ValueError, RecursionError):
        raise bundle_refusal(f"Line {number} of {EVENTS_NAME} is not valid JSON.") from None
    kinds = {"seq": int, "attempt": int, "type": str}
    if not isinstance(record, dict) or any(type(record.get(name)) is not kind for name, kind in kinds.items()):
        raise bundle_refusal(f"Line {number} of {EVENTS_NAME} is not an event.")
    return record
