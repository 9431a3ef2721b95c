"""A stand-in for srun: a prefix whose command runs as on another node of a shared folder.

The job is a process in a session of its own, without the descriptors and the mark of who submitted it, and it outlives
its srun. As srun does, this passes on signals, standard input and the exit status, and a job that waits for resources
is cancelled by TERM. A file `full` in the folder STATE lets no job begin; each job leaves a file named by its pid.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from workers.contract.trainer_process import MARK_VARIABLE


def prefix(state: Path) -> list[str]:
    """The words before a command. state: a folder."""
    return [sys.executable, "-m", "tests.support.fake_srun", str(state), "--gpus=1"]


def main(state: Path, command: list[str]) -> int:
    while (state / "full").exists():
        time.sleep(0.05)
    variables = {**os.environ, MARK_VARIABLE: f"of another host: {os.environ[MARK_VARIABLE]}"}
    job = subprocess.Popen(command, env=variables, start_new_session=True, close_fds=True)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda received, _: job.send_signal(received))
    (state / str(job.pid)).touch()
    status = job.wait()
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[3:]))
