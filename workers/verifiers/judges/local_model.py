"""A judge in a local folder, seen from the trainer: its process, which is killed and started again when it hangs."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from workers import heartbeat
from workers.contract.spec.judge import JudgeSettings
from workers.verifiers.children.line_process import LineProcess, ProcessLost
from workers.verifiers.judges import model_process
from workers.verifiers.judges.endpoint import JudgeRefuses
from workers.verifiers.judges.replies import CUT_OFF, Reply

START_LIMIT_S = 600.0
TRIES = 2
# What the process gets of the trainer's variables: where its libraries and its GPU are.
PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


class LocalModel:
    """One folder. `ask` is called by one thread at a time."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._lines = LineProcess(
            "-s", "-m", model_process.__name__, on_wait=heartbeat.send_heartbeat, stderr=subprocess.DEVNULL
        )

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
                if self._lines.pid is None:
                    self._start()
                return list(self._lines.ask({key: list(batch)}, limit_s)["replies"]), ""
            except ProcessLost as lost:
                late = f"no answer within {limit_s:g} s"
                problem = late if lost.is_late else "its process ended, perhaps for want of memory"
        return [], problem

    def _reply(self, line: dict[str, Any], seconds: float) -> Reply:
        tokens = int(line.get("tokens", 0))
        if line.get("failure"):
            return Reply(failure=str(line["failure"]), seconds=seconds)
        if "text" in line:
            failure = CUT_OFF if line["is_cut_off"] else ""
            return Reply(str(line["text"]), None, failure, False, seconds, tokens, int(line["new_tokens"]))
        return Reply("", value_of(self._settings, line["values"]), "", False, seconds, tokens)

    def _start(self) -> None:
        """A process that has loaded the model. Errors: ProcessLost, JudgeRefuses."""
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        names = ("kind", "model", "device", "max_tokens", "max_input_tokens")
        first = {name: getattr(self._settings, name) for name in names}
        greeting = self._lines.start(environment, START_LIMIT_S, first)
        if "failed" in greeting:
            self.close()
            raise JudgeRefuses(f"its model does not load: {greeting['failed']}")

    def close(self) -> None:
        """Kill the process; the next question starts another."""
        self._lines.close()


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
