"""Files of a checkpoint that something else is made of: linked where the disk can, and gone again where that fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.checkpoint_manifest import DamagedCheckpoint


@contextmanager
def made_in(folder: Path) -> Iterator[None]:
    """Whatever goes wrong within, nothing of the folder is left. Error: FieldErrors, where it is the checkpoint's."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, DamagedCheckpoint):
            raise FieldErrors([FieldError("damaged", f"{error}. Choose another checkpoint.", "step")]) from None
        if isinstance(error, OSError):
            message = f"The checkpoint could not be copied ({error.strerror}). Was it removed, or is the disk full?"
            raise FieldErrors([FieldError("not_copied", message, "step")], 507) from None
        raise


def link(source: Path, place: Path) -> None:
    """A hard link where the disk can, else a copy; folders on the way are made. Error: OSError.

    Files of checkpoints are never changed in place, and a large model is there at once, whatever becomes of its origin.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):  # another file system, or one without links
        os.link(source, place, follow_symlinks=False)
    if not place.exists():
        shutil.copyfile(source, place, follow_symlinks=False)
