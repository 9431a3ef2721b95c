"""A stand-in for the Python that has lm-evaluation-harness: `fake_harness.py -m lm_eval run --config FILE`.

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
        "lm_eval_version": VERSION,
        "chat_template": "{{ messages }}",
        "results": dict.fromkeys(tasks, result),
        "versions": dict.fromkeys(tasks, 3.0),
        "n-shot": dict.fromkeys(tasks, 5),
        "higher_is_better": {task: {"exact_match": True, "bleu": True} for task in tasks},
        "n-samples": {task: {"original": 1319, "effective": 4} for task in tasks},
    }


def evaluate(settings: dict[str, Any]) -> int:
    tasks, path = settings["tasks"], Path(settings["output_path"])
    result = path.with_name(f"{path.stem}_2026-11-27T10-00-00.json")  # as it names the file
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
        return 0
    if "malformed" in tasks:
        result.write_text('{"results": {"malformed": {')
        return 0
    if "fails" in tasks:
        raise ValueError("Tasks not found: fails")
    result.write_text(json.dumps(answer(tasks)))
    return 0


def main() -> int:
    *command, config = sys.argv[1:]
    assert command == ["-m", "lm_eval", "run", "--config"], command
    return evaluate(json.loads(Path(config).read_text()))


def put_harness(folder: Path) -> Path:
    """An executable that stands for the Python of the harness."""
    path = folder / "python-of-harness"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    sys.exit(main())
