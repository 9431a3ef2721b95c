"""Child processes that need not load what the tests' process has loaded: half a second each, and five for torch."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[2]
# They tell transformers that there is no torch, which is too late in a fork.
WITHOUT_TORCH = ("workers.inspection.preview_prompts",)


class Forked(subprocess.Popen[bytes]):
    """Runs `python -m MODULE` of ours in a fork of the tests' process, and any other command as Popen does.

    /proc shows the environment of the tests' process, so nobody finds such a process by the mark of its run. Libraries
    of the hub read its address once, when they are loaded: where it is another one, a process is started.
    """

    forks: ClassVar[set[int]] = set()

    def __init__(self, args: Sequence[str], **options: Any) -> None:
        variables = options.get("env") or {}
        python, *words = (word for word in args if word != "-s")
        is_module = [python, *words[:1]] == [sys.executable, "-m"] and words[1] not in WITHOUT_TORCH
        is_ours = is_module and "HF_ENDPOINT" not in variables
        if is_ours and variables.get("PYTHONPATH", "").split(os.pathsep)[0] in ("", str(ROOT)):
            kept = {0, 1, 2, *options.get("pass_fds", ())}
            options["preexec_fn"] = partial(_become, words[1:], options.get("env"), kept)
        super().__init__(args, **options)
        if "preexec_fn" in options:
            self.forks.add(self.pid)


def _become(words: Sequence[str], environment: Mapping[str, str] | None, kept: set[int]) -> None:
    """What `python -m WORDS` would be; does not return. Called between fork and exec."""
    gc.enable()
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2):
        faulthandler.unregister(number)
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - its own
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    sys.argv = list(words)
    status: Any = 1
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 1)


def run(args: Sequence[str], request: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with the request on its standard input."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Forked(args, text=True, **pipes) as process:
        output, errors = process.communicate(request, 120)
    return subprocess.CompletedProcess(args, process.returncode, output, errors)  # type: ignore[arg-type]


FORKING = SimpleNamespace(**{**vars(subprocess), "Popen": Forked})  # in the place of the module `subprocess`
