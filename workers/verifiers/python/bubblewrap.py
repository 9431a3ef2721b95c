"""Bubblewrap, a sandbox of its own that many distributions package: used around ours where it is installed and works.

It adds namespaces for processes, files, network and message queues: what runs in them sees no other process, no file
but those it needs, and no network device.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workers.contract.repository import ROOT
from workers.verifiers.python.sandbox import FOLDER_BYTES, READABLE, READABLE_NETWORK

SWITCH = "HACRL_BUBBLEWRAP"  # an environment variable: 0 leaves it out
TRIAL_LIMIT_S = 20


def bubblewrap(folder: str, *, has_network: bool = False) -> list[str]:
    """The beginning of a command that runs in it, with `folder` writable; empty if it is not installed, does not work
    here, or is switched off."""
    program = shutil.which("bwrap") if sys.platform == "linux" and os.environ.get(SWITCH) != "0" else None
    return _command(program, folder, has_network) if program and _works(program) else []


def sandbox_name() -> str:
    """What code of responses and reward functions run in on this machine."""
    return "Bubblewrap, Landlock and seccomp" if bubblewrap("/tmp") else "Landlock and seccomp"  # noqa: S108


def _command(program: str, folder: str, has_network: bool = False) -> list[str]:
    more = READABLE_NETWORK if has_network else ()
    places = dict.fromkeys([*READABLE, *more, sys.base_prefix, sys.prefix, str(ROOT / "workers")])
    binds = [part for place in places if Path(place).exists() for part in ("--ro-bind", place, place)]
    devices = [part for place in ("/dev/null", "/dev/urandom") for part in ("--dev-bind", place, place)]
    size = ["--size", str(FOLDER_BYTES), "--tmpfs", folder]
    kinds = ("user", "ipc", "pid", "uts", "cgroup-try", *(() if has_network else ("net",)))
    namespaces = [f"--unshare-{kind}" for kind in kinds]
    user = ["--uid", "65534", "--gid", "65534"]  # in its namespace; a root user there could map no further one
    world = ["--proc", "/proc", "--remount-ro", "/", "--cap-drop", "ALL", "--die-with-parent", "--chdir"]
    return [program, *namespaces, *binds, *devices, *size, *user, *world, str(ROOT)]


@functools.cache
def _works(program: str) -> bool:
    """Whether it can start Python: many containers allow no namespaces."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*_command(program, folder), sys.executable, "-S", "-c", "0"]
        try:
            return subprocess.run(command, capture_output=True, timeout=TRIAL_LIMIT_S).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
