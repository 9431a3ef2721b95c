"""Work on a checkpoint that outlives the request: a process of its own, whose facts and state are files in a folder.

`KEY.json` holds the facts that it was started with, `KEY.state` what it says of itself.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacrl_web.ops.disk_space import check_room
from hacrl_web.runs.worker.hosts import process_start
from hacrl_web.runs.worker.trainer_environment import trainer_environment
from workers.contract.repository import ROOT


@dataclass(frozen=True)
class BackgroundJob:
    """One process. state: as it last wrote it; `ended` in it says that it came to its end."""

    key: str
    facts: Mapping[str, Any]
    state: Mapping[str, Any]
    is_alive: bool

    @property
    def is_running(self) -> bool:
        return self.is_alive and not self.state.get("ended")


def start_job(
    folder: Path, module: str, facts: Mapping[str, Any], request: dict[str, Any], lock: int | None = None
) -> str:
    """Start `python -m module`, which reads the request with `status` from stdin; returns the job's key.

    lock: a descriptor of a locked file, which the process keeps open to its end.  Error: FieldErrors (507), if a disk
    is full.
    """
    check_room()
    folder.mkdir(mode=0o700, exist_ok=True)
    key = f"{time.time_ns():020d}-{secrets.token_hex(4)}"  # later keys are greater
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=folder,
        env=trainer_environment() | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=() if lock is None else (lock,),
    )
    facts = {**facts, "pid": process.pid, "started": process_start(process.pid) or 0.0}
    (folder / f"{key}.json").write_text(json.dumps(facts))
    assert process.stdin
    with suppress(BrokenPipeError):  # it ended at once, which the list says
        process.stdin.write(json.dumps(request | {"status": str(folder / f"{key}.state")}).encode())
        process.stdin.close()
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie stays
    return key


def jobs_in(folder: Path, most: int) -> list[BackgroundJob]:
    """The newest jobs of a folder, the newest first."""
    paths = sorted(folder.glob("*.json"), reverse=True)[:most] if folder.is_dir() else []
    return [one for path in paths if (one := _read(path))]


def _read(path: Path) -> BackgroundJob | None:
    facts = _object(path)
    if not facts:
        return None
    is_alive = process_start(int(facts["pid"])) == facts["started"] and _is_running(int(facts["pid"]))
    # After the look at the process, which writes its state last.
    return BackgroundJob(path.stem, facts, _object(path.with_suffix(".state")), is_alive)


def _is_running(pid: int) -> bool:
    """False for a process that has ended and was not waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        with suppress(OSError):
            os.kill(pid, 0)
            return not Path("/proc").is_dir()
        return False


def _object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
