"""The inside of a verifier's child process: limits from the kernel, and questions answered until stdin ends.

It reads `{"answer", "gold"}` lines on stdin and writes `{"right"}` lines on stdout, on its main thread. It sets no
alarm of its own: an answer that never returns is ended from outside, by `workers.rewards.Child`.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any


def serve(is_right: Callable[[str, str], bool | None], memory_bytes: int, seconds: int) -> None:
    """Answer with is_right(gold, answer) until stdin ends; None is "I cannot tell"."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which may still want its answer
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        # Should the parent die, the kernel ends an answer that never returns.
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + seconds + 2
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard_limit))
        try:
            right = is_right(request["gold"], request["answer"])
            reply: dict[str, Any] = {"right": right, "error": "cannot tell"} if right is None else {"right": right}
        except (MemoryError, RecursionError) as error:
            reply = {"right": None, "error": type(error).__name__}
        print(json.dumps(reply), flush=True)
