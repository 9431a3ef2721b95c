"""The job of a run whose trainer is elsewhere (workers/cluster), as those see it who must end it.

It is started by a launcher, which holds the run directory's lock. Who has the lock therefore knows that no launcher
lives, and may end what it left.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from workers.contract.repository import ROOT
from workers.contract.trainer_log import LOG_NAME

JOB_NAME = "job.json"  # there is a job, or may be one, and this is its scheduler
CONTROL = "control.json"  # what the job's task shall do
TASK_LEASE_S = 30.0  # a task that hears nothing of its launcher for so long ends its trainer
MARGIN_S = 10.0  # for a task to see its lease end, and its trainer to be killed
CANCEL_S = 30.0  # below the lease of a run
NO_ATTEMPT = 0


def write_note(path: Path, **values: Any) -> None:
    """Replace the file as a whole. Error: OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_text(json.dumps(values))
    temporary.replace(path)


def read_note(path: Path) -> dict[str, Any]:
    """Empty if there is none, or none that can be read now."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def refuse_job(run_dir: Path) -> None:
    """Have the job's task end its trainer at once, or start none. The caller holds the lock. Error: OSError."""
    write_note(run_dir / CONTROL, attempt=NO_ATTEMPT)


def start_cancel(run_dir: Path, lock: int) -> subprocess.Popen[bytes]:
    """Begin to end the job in a process that keeps the lock; once it succeeds, job.json is gone. Error: OSError."""
    command = [sys.executable, "-m", "workers.cluster", "cancel", str(run_dir)]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    with open(run_dir / LOG_NAME, "ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=variables, pass_fds=[lock]
        )


def cancel_job(run_dir: Path, lock: int) -> None:
    """End the job. What the scheduler does not end now is cancelled by a worker later (runs/worker/left_jobs.py)."""
    with contextlib.suppress(OSError), start_cancel(run_dir, lock) as process:
        try:
            process.wait(CANCEL_S)
        except subprocess.TimeoutExpired:
            process.kill()
