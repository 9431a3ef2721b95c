"""Verified rewards: 1 for a right answer, 0 for a wrong one, none where it could not be scored.

Station of the flow between sampling and advantages. Plain numbers are compared here; everything else goes to a warm
child process with limited memory and a wall clock, which is killed and replaced when it exceeds them. An answer that
cannot be scored is not wrong: it is counted and left out. `python -m workers.rewards CASES.jsonl` scores a file of
`{"id", "gold", "response"}` lines and prints a verdict a line.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from workers import pulse
from workers.answers import MAX_ANSWER_CHARACTERS, clean, decide, final_answer

REWARD_MAX = 1.0
TIME_LIMIT_S = 3.0
START_LIMIT_S = 60.0
MEMORY_LIMIT_BYTES = 1536 * 2**20
REMEMBERED = 100_000
# A reference answer with more words than this is prose, which no algebra compares.
MAX_ANSWER_WORDS = 8
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}")
_PROBE = "271828"  # wrong for nearly everything; every sound reference answer can be compared with it


@dataclass(frozen=True)
class Verdict:
    """`reward` is 1.0, 0.0 or None (unscorable); `reason` says why in a few words."""

    reward: float | None
    reason: str
    is_timeout: bool = False


RIGHT = Verdict(1.0, "right")
WRONG = Verdict(0.0, "wrong")
NO_ANSWER = Verdict(0.0, "no closed \\boxed{...} and no stated answer")
DIED = Verdict(None, "unscorable: the verifier process died")
TOO_LONG = Verdict(0.0, f"answer longer than {MAX_ANSWER_CHARACTERS} characters")


class VerifierError(RuntimeError):
    """The verifier itself does not work; this is no verdict about an answer."""


class Child:
    """One warm verifier process, `python -m module`, and its pipe. Used by one thread at a time."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module, self._arguments = module, arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def ask(self, answer: str, gold: str) -> Verdict:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"answer": answer, "gold": gold}).encode() + b"\n")
            process.stdin.flush()
            reply = self._read(process, TIME_LIMIT_S)
        except BrokenPipeError:
            reply = {}
        if reply is None or "right" not in reply:
            self.close()
            return Verdict(None, f"unscorable: no verdict in {TIME_LIMIT_S:g} s", True) if reply is None else DIED
        if reply["right"] is None:
            return Verdict(None, f"unscorable: {reply['error']}")
        return RIGHT if reply["right"] else WRONG

    def _start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            self._module,
            str(MEMORY_LIMIT_BYTES),
            str(int(TIME_LIMIT_S)),
            *self._arguments,
        ]
        # The child's work is single-threaded; without this, numeric libraries reserve memory for each core.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[1],
            env=environment,
        )
        self._process, self._buffer = process, b""
        if not self._read(process, START_LIMIT_S):
            self.close()
            raise VerifierError("The verifier process did not start: install the train extra (math-verify).")
        return process

    def _read(self, process: subprocess.Popen[bytes], limit_s: float) -> dict[str, Any] | None:
        """The next line as an object; {} when the process has ended, None after `limit_s`."""
        assert process.stdout is not None
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    return {}
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:  # a line that never went out
                pass


class Verifier:
    """Scores responses. `processes` children at most, started when the first answer needs one."""

    def __init__(self, kind: Literal["math", "exact"], processes: int = 1) -> None:
        self.kind = kind
        self._children = [Child("workers.symbolic") for _ in range(processes)]
        self._free: SimpleQueue[Child] = SimpleQueue()
        for child in self._children:
            self._free.put(child)
        self._pool = ThreadPoolExecutor(processes, thread_name_prefix="verifier")
        self._remembered: OrderedDict[tuple[str, str], Verdict] = OrderedDict()
        self._lock = threading.Lock()

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def score(self, completions: list[str], answers: list[str]) -> list[Verdict]:
        """One verdict per response, in order. Error: VerifierError where the verifier cannot run at all."""
        if len(completions) != len(answers):
            raise ValueError(f"{len(completions)} responses but {len(answers)} reference answers")
        if self.kind == "exact":
            return [_score_exact(completion, gold) for completion, gold in zip(completions, answers, strict=True)]
        verdicts: list[Verdict | None] = []
        open_pairs: dict[tuple[str, str], list[int]] = {}
        for index, (completion, gold) in enumerate(zip(completions, answers, strict=True)):
            settled = _score_plainly(completion, gold)
            verdicts.append(settled if isinstance(settled, Verdict) else None)
            if not isinstance(settled, Verdict):
                open_pairs.setdefault(settled, []).append(index)
        for pair, verdict in zip(open_pairs, self._pool.map(self._ask, open_pairs), strict=True):
            pulse.beat()
            for index in open_pairs[pair]:
                verdicts[index] = verdict
        return [verdict for verdict in verdicts if verdict is not None]

    def doubts(self, answers: list[str]) -> list[str]:
        """Why no response, or none but a copy, could match each reference answer; empty where one can.

        Error: VerifierError.
        """
        doubts = []
        for doubt in self._pool.map(self._doubt, answers):
            pulse.beat()
            doubts.append(doubt)
        return doubts

    def _doubt(self, gold: str) -> str:
        if final_answer(f"\\boxed{{{gold}}}") != gold:
            return "its braces do not close"
        if self.kind == "exact":
            return ""
        if len(gold) > MAX_ANSWER_CHARACTERS:
            return f"longer than {MAX_ANSWER_CHARACTERS} characters"
        cleaned = clean(gold)
        if (words := len(_WORD.findall(cleaned))) > MAX_ANSWER_WORDS:
            return f"prose of {words} words: only the same text would match"
        settled = _score_plainly(f"\\boxed{{{_PROBE}}}", gold)
        verdict = settled if isinstance(settled, Verdict) else self._ask(settled)
        return verdict.reason if verdict.reward is None else ""

    def _ask(self, pair: tuple[str, str]) -> Verdict:
        """The verdict on (answer, gold), remembered or from a child."""
        with self._lock:
            if pair in self._remembered:
                self._remembered.move_to_end(pair)
                return self._remembered[pair]
        child = self._free.get()
        try:
            verdict = child.ask(*pair)
        finally:
            self._free.put(child)
        if verdict == DIED:
            return verdict  # it may have been killed from outside
        with self._lock:
            self._remembered[pair] = verdict
            if len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
        return verdict

    def forget_unscorable(self) -> None:
        """Ask again next time about what could not be scored so far."""
        with self._lock:
            for pair in [pair for pair, verdict in self._remembered.items() if verdict.reward is None]:
                del self._remembered[pair]

    def close(self) -> None:
        """End the children. The verifier is not used afterwards."""
        self._pool.shutdown()
        for child in self._children:
            child.close()


def _score_exact(completion: str, gold: str) -> Verdict:
    """The last boxed text, or the whole response where it has no box, against the gold, spaces around them aside."""
    found = final_answer(completion) if "\\boxed" in completion else completion
    if found is None:
        return NO_ANSWER
    return RIGHT if found.strip() == gold.strip() else WRONG


def _score_plainly(completion: str, gold: str) -> Verdict | tuple[str, str]:
    """The verdict where text alone settles it, else the cleaned (answer, gold)."""
    found = final_answer(completion)
    if found is None or not found.strip():
        return NO_ANSWER
    if found.strip() == gold.strip():
        return RIGHT
    if not gold.strip():
        return Verdict(0.0, "the reference answer is empty")
    if len(found) > MAX_ANSWER_CHARACTERS:
        return TOO_LONG
    answer, cleaned_gold = clean(found), clean(gold)
    decided = decide(answer, cleaned_gold)
    if decided is None:
        return answer, cleaned_gold
    return RIGHT if decided else WRONG


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of {"id", "gold", "response"}; long texts may come as `response_rle`, a list of [piece, count]."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            for key in ("gold", "response"):
                if key not in case:
                    case[key] = "".join(piece * count for piece, count in case[f"{key}_rle"])
            yield case


def main(arguments: list[str]) -> int:
    """Print one verdict a line."""
    if len(arguments) != 1:
        print("usage: python -m workers.rewards CASES.jsonl", file=sys.stderr)
        return 2
    with Verifier("math") as verifier:
        for case in read_cases(Path(arguments[0])):
            begin = time.monotonic()
            verdict = verifier.score([case["response"]], [case["gold"]])[0]
            seconds = round(time.monotonic() - begin, 4)
            line = {"id": case["id"], "reward": verdict.reward, "reason": verdict.reason, "seconds": seconds}
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
