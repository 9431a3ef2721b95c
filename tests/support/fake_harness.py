"""A stand-in for the Python that has lm-evaluation-harness: `fake_harness.py DRIVER VERB RESULT [REQUEST]`.

The names of the tasks say how it behaves: `fails`, `hangs` (with a child that ignores TERM), `floods`, `malformed`,
`silent` (no results), `killed`; any other task gets the numbers of `answer`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VERSION = "0.4.99"
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


def answer(tasks: list[str]) -> dict[str, Any]:
    """1 of 4 and 3 of 4 by two filters; the standard error of both is sqrt(0.25 * 0.75 / (4 - 1)) = 0.25."""
    result = {
        "alias": "a task",
        "exact_match,strict": 0.25,
        "exact_match_stderr,strict": 0.25,
        "exact_match,flexible": 0.75,
        "exact_match_stderr,flexible": 0.25,
        "bleu,none": 12.5,
        "bleu_stderr,none": "N/A",
    }
    return {
        "version": VERSION,
        "has_chat_template": True,
        "results": dict.fromkeys(tasks, result),
        "versions": dict.fromkeys(tasks, 3.0),
        "n-shot": dict.fromkeys(tasks, 5),
        "higher_is_better": {task: {"exact_match": True, "bleu": True} for task in tasks},
        "n-samples": {task: {"original": 1319, "effective": 4} for task in tasks},
    }


def evaluate(result: Path, request: dict[str, Any]) -> int:
    tasks = request["tasks"]
    print("the harness's own output", flush=True)
    if "floods" in tasks:
        for _ in range(12):
            print("x" * 2**20, flush=True)
    if "hangs" in tasks:
        child = subprocess.Popen([sys.executable, "-c", CHILD])
        (result.parent / "child").write_text(str(child.pid))
        time.sleep(3600)
    if "killed" in tasks:
        os.kill(os.getpid(), signal.SIGKILL)
    if "silent" in tasks:
        return 3
    if "malformed" in tasks:
        result.write_text('{"results": {"malformed": {')
        return 0
    if "fails" in tasks:
        result.write_text(json.dumps({"error": "ValueError: the data set is not there"}))
        return 1
    if "slow" in tasks:
        time.sleep(0.0 if (result.parent.parent.parent / "quick").exists() else 3600.0)
    result.write_text(json.dumps(answer(tasks)))
    return 0


def main() -> int:
    _, verb, path, *rest = sys.argv[1:]
    if verb == "evaluate":
        return evaluate(Path(path), json.loads(Path(rest[0]).read_text()))
    content: dict[str, Any] = {"version": VERSION, "versions": {"lm_eval": VERSION, "torch": "2.13.0"}}
    Path(path).write_text(json.dumps(content | {"tasks": ["gsm8k", "arc_easy", "slow", "hangs", "fails"]}))
    return 0


def put_harness(folder: Path) -> Path:
    """An executable that stands for the Python of the harness."""
    path = folder / "python-of-harness"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    sys.exit(main())
