"""Uploaded question files: written to a folder of their own while their size is counted, kept only if all goes well."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from hacrl_web.errors import FieldError, FieldErrors

MAX_UPLOAD_BYTES = 50 * 2**20
STAGING_PREFIX = ".incoming-"
STALE_S = 3600


@contextmanager
def staging_folder() -> Iterator[Path]:
    """A new folder beside the benchmarks, removed at the end unless it was moved away."""
    settings.BENCHMARKS_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = settings.BENCHMARKS_DIR / f"{STAGING_PREFIX}{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    _sweep()
    try:
        yield folder
    finally:
        discard(folder)


def discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what killed processes left behind."""
    for left in settings.BENCHMARKS_DIR.glob(f"{STAGING_PREFIX}*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > STALE_S:
                discard(left)


def store(upload: UploadedFile, path: Path, field: str) -> None:
    """Copy an upload to `path`. Error: FieldErrors where it is too large, or the disk is full."""
    written = 0
    try:
        with open(path, "xb") as file:
            for chunk in upload.chunks():
                written += len(chunk)
                if written > MAX_UPLOAD_BYTES:
                    message = f"The file is larger than {MAX_UPLOAD_BYTES // 2**20} MiB, the most that is allowed."
                    raise FieldErrors([FieldError("too_large", message, field)])
                file.write(chunk)
    except OSError as error:
        message = f"The file could not be stored: {error.strerror}."
        raise FieldErrors([FieldError("not_stored", message, field)], 507) from None


def keep(staged: Path, folder: Path) -> None:
    """Move a staged folder to its place. A leftover there has no row: its writer died before the commit."""
    discard(folder)
    staged.rename(folder)
