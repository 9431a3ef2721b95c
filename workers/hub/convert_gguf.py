"""Runs llama.cpp's converter on one model folder: a process of its own, which outlives the request that asked for it.

`python -m workers.hub.convert_gguf` reads one JSON object from stdin: {command, output, time_limit_s, status}. It
writes its state to the file `status`: {phase}, then {size_bytes, weights} or {error} with `ended`. The file `output`
appears only once the converter has ended well. What the converter has started ends with it: all are one process
group, which this process leads.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

LAST_BYTES = 2000  # of the converter's output, for a failure
_PR_SET_PDEATHSIG = 1
# Of the GGUF format (ggml/docs/gguf.md): bytes of a value by its type; the types of weights that can be asked for.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_FILE_TYPES = {0: "f32", 1: "f16", 7: "q8_0", 32: "bf16"}


class ConversionFailed(Exception):
    """There is no file; the text says why."""


def make_gguf_file(request: dict[str, Any]) -> int:
    """The size of the file in bytes. Errors: ConversionFailed, OSError."""
    output = Path(request["output"])
    part = output.with_suffix(".part")
    # A model's files may name code on the hub, and the converter may trust them: nothing is fetched.
    variables = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    with tempfile.TemporaryFile() as log:
        try:
            ended = subprocess.run(
                [*request["command"], "--outfile", str(part)],
                cwd=output.parent,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=request["time_limit_s"],
                check=False,
                preexec_fn=_end_with_this_process(),
            )
        except subprocess.TimeoutExpired:
            raise ConversionFailed(f"The converter did not end within {request['time_limit_s']:.0f} s.") from None
        finally:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LAST_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        if ended.returncode:
            last = lines[-1][:500] if lines else "it wrote nothing"
            raise ConversionFailed(f"The converter ended with status {ended.returncode}: {last}")
    if not part.is_file() or part.is_symlink():
        raise ConversionFailed("The converter ended without a file.")
    with open(part, "rb") as file:
        if file.read(4) != b"GGUF":
            raise ConversionFailed("The converter's output is not a GGUF file.")
    part.rename(output)
    return output.stat().st_size


def weights_of(path: Path) -> str:
    """The type of a GGUF file's weights by its header: f16 ...; empty if it does not say, or another one."""
    with open(path, "rb") as file, contextlib.suppress(struct.error, KeyError, OverflowError, OSError):

        def number(form: str) -> int:
            return int(struct.unpack(f"<{form}", file.read(struct.calcsize(form)))[0])

        def skip(kind: int) -> None:
            if kind == _ARRAY:
                kind, length = number("I"), number("Q")
                for _ in range(length if kind == _STRING else 0):
                    file.seek(number("Q"), os.SEEK_CUR)
                file.seek(0 if kind == _STRING else length * _SIZES[kind], os.SEEK_CUR)
            else:
                file.seek(number("Q") if kind == _STRING else _SIZES[kind], os.SEEK_CUR)

        file.seek(16)  # magic, version, number of tensors
        for _ in range(number("Q")):
            name, kind = file.read(min(number("Q"), 1000)), number("I")
            if name == b"general.file_type":
                return _FILE_TYPES.get(number("I"), "")
            skip(kind)
    return ""


def _end_with_this_process() -> Callable[[], object] | None:
    """For the converter, if this process is killed alone."""
    if sys.platform != "linux":
        return None
    return partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def main() -> int:
    request = json.loads(sys.stdin.buffer.read())
    status = Path(request["status"])

    def write_state(**values: Any) -> None:
        part = status.with_suffix(".new")
        part.write_text(json.dumps(values))
        part.replace(status)

    try:
        write_state(phase="converting")
        size = make_gguf_file(request)
        write_state(phase="converted", ended=True, size_bytes=size, weights=weights_of(Path(request["output"])))
    except (ConversionFailed, OSError) as error:
        with contextlib.suppress(OSError):
            Path(request["output"]).with_suffix(".part").unlink(missing_ok=True)
        write_state(phase="failed", ended=True, error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    exit_status = main()
    if os.getsid(0) == os.getpid():  # as the web starts it: nobody else is in the group
        os.killpg(0, signal.SIGKILL)
    sys.exit(exit_status)
