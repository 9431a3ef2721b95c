"""Verified rewards: 1 for a correct answer, 0 for an incorrect one, None for an unscorable one.

Rewards are computed between sampling and advantages. Where the rules of a kind need more than text, a warm child
process with limits on memory and time decides; it is killed and replaced when it exceeds them.
`python -m workers.verifiers.scoring.service CASES.jsonl [--verifier KIND] [--tolerance T]
[--extraction strict|flexible]` scores a file of `{"id", "gold", "response"}` lines and prints a verdict a line.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from workers import heartbeat
from workers.contract.verifier_kinds import (
    DEFAULT_TOLERANCE,
    FILE_KINDS,
    RESPONSE_EXTRACTIONS,
    RULES,
    ResponseExtraction,
    VerifierKind,
)
from workers.verifiers.children.child_client import VerifierProcess
from workers.verifiers.python.degenerate.solutions import TrialKind
from workers.verifiers.scoring.kinds import kind_of
from workers.verifiers.scoring.verdicts import DIED, Query, Verdict

CACHE_SIZE = 100_000
_PROBE = "\\boxed{271828}"  # an answer that every valid gold can be compared with


class Verifier(AbstractContextManager["Verifier"]):
    """Scores responses with up to `processes` children, which start when an answer needs one."""

    def __init__(
        self,
        kind: VerifierKind | TrialKind,
        processes: int = 1,
        tolerance: float = DEFAULT_TOLERANCE,
        extraction: ResponseExtraction = "strict",
    ) -> None:
        """tolerance: relative, of kind `numeric`; extraction: of `math` and `numeric`."""
        self._rules = rules = kind_of(kind, tolerance, extraction)
        self._children = [VerifierProcess(rules.module, *rules.arguments) for _ in range(processes)]
        self._free: SimpleQueue[VerifierProcess] = SimpleQueue()
        for child in self._children:
            self._free.put(child)
        self._pool = ThreadPoolExecutor(processes, thread_name_prefix="verifier")
        self._cache: OrderedDict[Query, Verdict] = OrderedDict()
        self._lock = threading.Lock()

    def __exit__(self, *_: object) -> None:
        self.close()

    def score(self, completions: list[str], answers: list[str]) -> list[Verdict]:
        """One verdict per response, in order. Error: VerifierError if the verifier cannot run at all."""
        if len(completions) != len(answers):
            raise ValueError(f"{len(completions)} responses but {len(answers)} reference answers")
        verdicts: list[Verdict | None] = []
        open_pairs: dict[Query, list[int]] = {}
        for index, (completion, gold) in enumerate(zip(completions, answers, strict=True)):
            quick = self._rules.quick_verdict(completion, gold)
            verdicts.append(quick if isinstance(quick, Verdict) else None)
            if not isinstance(quick, Verdict):
                open_pairs.setdefault(quick, []).append(index)
        for pair, verdict in zip(open_pairs, self._pool.map(self._ask, open_pairs), strict=True):
            heartbeat.send_heartbeat()
            for index in open_pairs[pair]:
                verdicts[index] = verdict
        return [verdict for verdict in verdicts if verdict is not None]

    def doubts(self, answers: list[str]) -> list[str]:
        """For each gold why no response, or only a copy, can match; empty if one can. Error: VerifierError."""
        doubts = []
        for doubt in self._pool.map(self._doubt, answers):
            heartbeat.send_heartbeat()
            doubts.append(doubt)
        return doubts

    def _doubt(self, gold: str) -> str:
        if reason := self._rules.unclear_gold(gold):
            return reason
        quick = self._rules.quick_verdict(_PROBE, gold)
        verdict = quick if isinstance(quick, Verdict) else self._ask(quick)
        return verdict.reason if verdict.reward is None else ""

    def _ask(self, pair: Query) -> Verdict:
        """The verdict on an answer, from the cache or a child."""
        with self._lock:
            if pair in self._cache:
                self._cache.move_to_end(pair)
                return self._cache[pair]
        child = self._free.get()
        try:
            verdict = child.ask(*pair)
        finally:
            self._free.put(child)
        if verdict == DIED:
            return verdict  # not cached: the child may have been killed from outside
        with self._lock:
            self._cache[pair] = verdict
            if len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        return verdict

    def forget_unscorable(self) -> None:
        """Clear the cache of unscorable answers, so that they are tried again."""
        with self._lock:
            for pair in [pair for pair, verdict in self._cache.items() if verdict.reward is None]:
                del self._cache[pair]

    def close(self) -> None:
        """End the children; the verifier cannot be used afterwards."""
        self._pool.shutdown(cancel_futures=True)
        for child in self._children:
            child.close()


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of {"id", "gold", "response"}; a long text may be `response_rle`, a list of [piece, count]."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            for key in ("gold", "response"):
                if key not in case:
                    case[key] = "".join(piece * count for piece, count in case[f"{key}_rle"])
            yield case


def main(arguments: list[str] | None = None) -> int:
    """Print a verdict a line."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.verifiers.scoring.service", description="Print a verdict on each case."
    )
    parser.add_argument("cases", metavar="CASES.jsonl", type=Path, help='lines of {"id", "gold", "response"}')
    parser.add_argument("--verifier", choices=sorted(RULES.keys() - {*FILE_KINDS}), default="math")
    parser.add_argument("--tolerance", type=float, default=DEFAULT_TOLERANCE, help="relative; of numeric only")
    parser.add_argument("--extraction", choices=RESPONSE_EXTRACTIONS, default="strict", help="of math and numeric only")
    options = parser.parse_args(arguments)
    with Verifier(options.verifier, tolerance=options.tolerance, extraction=options.extraction) as verifier:
        for case in read_cases(options.cases):
            begin = time.monotonic()
            verdict = verifier.score([case["response"]], [case["gold"]])[0]
            seconds = round(time.monotonic() - begin, 4)
            line = {"id": case["id"], "reward": verdict.reward, "reason": verdict.reason, "seconds": seconds}
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
