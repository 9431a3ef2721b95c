"""Asks the trainer's side about question files, in a short child process with limits: what they are, and to read them.

The web process holds no question of an upload: `python -m workers.questions.import_cli` reads, checks and writes.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from hacrl_web.registry.children import Ended, run_child
from hacrl_web.registry.language_models.inspection import read_answer
from hacrl_web.web.errors import FieldError, FieldErrors

TIMEOUT_S = 600.0
CPU_S = 600
MEMORY_BYTES = 512 * 2**20  # address space: 200 MB of JSONL are read within it
PARQUET_MEMORY_BYTES = 4 * 2**30  # pyarrow maps much more than it uses
AT_ONCE = 2  # children of one web process
WAIT_S = 60.0

_turns = threading.BoundedSemaphore(AT_ONCE)


def ask_importer(request: dict[str, Any], field: str, held_out_field: str = "") -> dict[str, Any]:
    """The child's answer. Error: FieldErrors with what it says is wrong, or where it says nothing.

    held_out_field: where an error of the held-out file stands, if not at `field`.
    """
    if not _turns.acquire(timeout=WAIT_S):
        raise FieldErrors([FieldError("busy", "Too many files are read at once. Try again in a minute.", field)], 503)
    try:
        ended = _run_child(request)
    finally:
        _turns.release()
    answer = read_answer(ended, TIMEOUT_S, field)
    if answer.get("error"):
        blamed = held_out_field if held_out_field and answer.get("is_held_out") else field
        raise FieldErrors([FieldError("bad_file", str(answer["error"]), blamed)])
    return answer


def _run_child(request: dict[str, Any]) -> Ended:
    return run_child(
        "workers.questions.import_cli",
        timeout_s=TIMEOUT_S,
        memory_bytes=PARQUET_MEMORY_BYTES if _needs_libraries(request) else MEMORY_BYTES,
        cpu_s=CPU_S,
        stdin=json.dumps(request).encode(),
    )


def _needs_libraries(request: dict[str, Any]) -> bool:
    """Whether the child loads pyarrow or the hub's client."""
    if request["verb"] == "fetch":
        return True
    files = [*request.get("files", []), *request.get("train", []), *request.get("held_out", [])]
    for file in files:
        with open(file["path"], "rb") as opened:
            if opened.read(4) == b"PAR1":
                return True
    return False
