"""The download of a run's hub models before its trainer starts: a process of its own, which alone has the Hub token.

The token goes to its standard input, so it is in no argument, environment, file or log. The trainer reads the cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hacrl_web.runs.worker.trainer_environment import trainer_environment
from workers.contract.repository import ROOT
from workers.contract.spec.run import RunSpec

SILENCE_S = 300.0  # without a byte, after which the hub hangs


class DownloadFailed(Exception):
    """A model cannot be had; the text says why and what to do."""


def hub_models(spec: RunSpec) -> list[tuple[str, str | None]]:
    """Hub id and revision of each model that is no local folder."""
    models = ((agent.model, agent.revision) for agent in spec.agents if not os.path.isabs(agent.model))
    return list(dict.fromkeys(models))


class ModelDownload:
    """A running download. It ends with this process, which holds its standard input open."""

    def __init__(self, models: list[tuple[str, str | None]], hub_token: str, run_dir: Path) -> None:
        """Error: OSError."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workers.hub.download"],
            cwd=run_dir,
            env=trainer_environment() | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self.process.stdin
        assert self.process.stdout
        os.set_blocking(self.process.stdout.fileno(), False)
        self._rest, self._read_at = b"", time.monotonic()
        self.is_complete = False
        self.phase = ""  # what it does, in words, as last reported
        self.process.stdin.write(json.dumps({"hub_token": hub_token, "models": models}).encode() + b"\n")
        self.process.stdin.flush()

    def new_messages(self) -> list[str]:
        """What it has reported since the last call. Error: DownloadFailed."""
        has_ended = self.process.poll() is not None
        messages = []
        for line in self._new_lines():
            if line.get("error"):
                raise DownloadFailed(line["error"])
            self.is_complete = self.is_complete or bool(line.get("ok"))
            self.phase = line.get("phase", self.phase)
            messages += [line["message"]] if "message" in line else []
        if has_ended and not self.is_complete:
            status = self.process.returncode
            raise DownloadFailed(
                f"The download of the models ended without an answer (status {status}): retry the run."
            )
        if time.monotonic() - self._read_at > SILENCE_S:
            message = (
                f"The hub has sent nothing of the models for {SILENCE_S:.0f} s: check the connection and retry the run."
            )
            raise DownloadFailed(f"{message} What has arrived is kept.")
        return messages

    def _new_lines(self) -> list[dict[str, Any]]:
        assert self.process.stdout
        if text := self.process.stdout.read():
            self._read_at = time.monotonic()
            *lines, self._rest = (self._rest + text).split(b"\n")
            return [json.loads(line) for line in lines]
        return []

    def end(self) -> None:
        """Kill it if it still runs."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
