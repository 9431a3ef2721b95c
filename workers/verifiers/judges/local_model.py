"""A judge in a local folder, seen from the trainer: its process, which is killed and started again when it hangs."""

from __future__ import annotations

import json
import math
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from workers import heartbeat
from workers.contract.repository import ROOT
from workers.contract.spec.judge import JudgeSettings
from workers.verifiers.judges.endpoint import JudgeRefuses
from workers.verifiers.judges.replies import CUT_OFF, Reply

START_LIMIT_S = 600.0
TRIES = 2
# What the process gets of the trainer's variables: where its libraries and its GPU are.
PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


class _ProcessLost(Exception):
    """The process was killed at the time limit, or died; the text says which."""


class LocalModel:
    """One folder. `ask` is called by one thread at a time."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def ask(self, questions: Sequence[Any], on_reply: Callable[[Reply], None] = lambda reply: None) -> list[Reply]:
        """A reply to each message, or to each (question, response) of a reward model. Error: JudgeRefuses."""
        size = self._settings.batch_size if self._settings.kind == "model" else 1
        replies: list[Reply] = []
        for start in range(0, len(questions), size):
            batch = questions[start : start + size]
            begin = time.monotonic()
            lines, problem = self._answers(batch)
            seconds = (time.monotonic() - begin) / len(batch)
            own = [self._reply(line, seconds) for line in lines] if lines else [_lost(problem, seconds)] * len(batch)
            for reply in own:
                on_reply(reply)
            replies += own
            if not lines:  # twice in a row: the rest would fail alike
                replies += [_lost("not asked, because the judge failed before", 0.0)] * (len(questions) - len(replies))
                break
        return replies

    def _answers(self, batch: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
        """The lines of the process, or none and the problem. Error: JudgeRefuses."""
        key = "messages" if self._settings.kind == "model" else "pairs"
        limit_s = self._settings.time_limit_s
        problem = ""
        for _ in range(TRIES):
            try:
                process = self._process or self._start()
                self._send(process, {key: list(batch)})
                answer = self._read(process, limit_s, f"no answer within {limit_s:g} s")
                return list(answer["replies"]), ""
            except _ProcessLost as lost:
                problem = str(lost)
        return [], problem

    def _reply(self, line: dict[str, Any], seconds: float) -> Reply:
        tokens = int(line.get("tokens", 0))
        if line.get("failure"):
            return Reply(failure=str(line["failure"]), seconds=seconds)
        if "text" in line:
            failure = CUT_OFF if line["is_cut_off"] else ""
            return Reply(str(line["text"]), None, failure, False, seconds, tokens, int(line["new_tokens"]))
        return Reply("", value_of(self._settings, line["values"]), "", False, seconds, tokens)

    def _start(self) -> subprocess.Popen[bytes]:
        """A process that has loaded the model. Errors: _ProcessLost, JudgeRefuses."""
        settings = self._settings
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._buffer = b""
        self._process = process = subprocess.Popen(
            [sys.executable, "-s", "-m", "workers.verifiers.judges.model_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**environment, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        names = ("kind", "model", "device", "max_tokens", "max_input_tokens")
        self._send(process, {name: getattr(settings, name) for name in names})
        greeting = self._read(process, START_LIMIT_S, f"its model did not load in {START_LIMIT_S:g} s")
        if "failed" in greeting:
            self.close()
            raise JudgeRefuses(f"its model does not load: {greeting['failed']}")
        return process

    def _send(self, process: subprocess.Popen[bytes], line: dict[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # reading tells how it ended
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()

    def _read(self, process: subprocess.Popen[bytes], limit_s: float, late: str) -> dict[str, Any]:
        """The next line as an object. Error: _ProcessLost."""
        assert process.stdout is not None
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    self.close()
                    raise _ProcessLost(late)
                heartbeat.send_heartbeat()
                if not selector.select(min(heartbeat.EVERY_S, remaining_s)):
                    continue
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    self.close()
                    raise _ProcessLost("its process ended, perhaps for want of memory")
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Kill the process; the next question starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(BrokenPipeError):
                pipe.close()


def _lost(problem: str, seconds: float) -> Reply:
    return Reply(failure=problem, is_transport=True, seconds=seconds)


def value_of(settings: JudgeSettings, outputs: Sequence[float]) -> float | None:
    """A reward model's reward, from 0 to 1; None if an output is no number. Error: JudgeRefuses, without the label."""
    if not all(math.isfinite(number) for number in outputs):
        return None
    if len(outputs) > 1:
        if settings.label >= len(outputs):
            raise JudgeRefuses(f"label is {settings.label}, but the model has {len(outputs)} outputs, from 0")
        highest = max(outputs)
        powers = [math.exp(number - highest) for number in outputs]
        return powers[settings.label] / math.fsum(powers)
    [logit] = outputs
    if settings.scale == "sigmoid":
        return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))
    return min(1.0, max(0.0, (logit - settings.lowest) / (settings.highest - settings.lowest)))
