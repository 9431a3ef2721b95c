"""Asks the trainer's side what a model is, or how two differ, in a short child process with limits.

The web process loads no ML library: `python -m workers.inspection.inspect_model` prints one JSON object and ends.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from hacrl_web.registry.children import Ended, run_child
from hacrl_web.web.errors import FieldError, FieldErrors

TIMEOUT_S = 60.0
MEMORY_BYTES = 12 * 2**30  # address space, of which an ML library maps much more than it uses
CPU_S = 120
AT_ONCE = 2  # children of one web process

_turns = threading.BoundedSemaphore(AT_ONCE)


def inspect(verb: str, *arguments: str, field: str) -> dict[str, Any]:
    """The object that the child printed, refusals included. Error: FieldErrors at `field` where there is none."""
    if not _turns.acquire(timeout=TIMEOUT_S):
        raise FieldErrors([FieldError("busy", "Too many inspections at once. Try again in a minute.", field)], 503)
    try:
        ended = _run_child([verb, *arguments])
    finally:
        _turns.release()
    return read_answer(ended, TIMEOUT_S, field)


def read_answer(ended: Ended, limit_s: float, field: str) -> dict[str, Any]:
    """The object that a child printed. Error: FieldErrors at `field` where there is none."""
    if ended.is_late:
        message = f"The inspection took longer than {limit_s:.0f} s and was ended."
        raise FieldErrors([FieldError("too_slow", message, field)])
    try:
        answer = json.loads(ended.output, parse_constant=lambda text: None)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        message = f"The inspection ended without an answer ({ended.ending}): the files may be damaged or too large."
        raise FieldErrors([FieldError("inspection_failed", message, field)])
    return _storable(answer)


def _run_child(arguments: list[str]) -> Ended:
    return run_child(
        "workers.inspection.inspect_model", arguments, timeout_s=TIMEOUT_S, memory_bytes=MEMORY_BYTES, cpu_s=CPU_S
    )


def _storable(value: Any) -> Any:
    """The same without what a database's JSON refuses: NUL and lone surrogates in texts, endless integers."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value
