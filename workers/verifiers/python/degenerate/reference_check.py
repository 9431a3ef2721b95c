"""Whether reference answers test anything: degenerate solutions are tried against each when a benchmark is imported.

One that an empty solution passes is refused; the others are named, because plain values may well be the right answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.python.degenerate.solutions import REWARDED, TRIAL
from workers.verifiers.python.forms import NOT_USED
from workers.verifiers.python.python_tests import unclear_tests
from workers.verifiers.python.reference import split_reference
from workers.verifiers.python.uses import why_one_process
from workers.verifiers.scoring.service import Verifier
from workers.verifiers.scoring.verdicts import DIED

EMPTY_SOLUTION = "```python\npass\n```"
MAX_PROCESSES = 8
CHUNK = 32  # references between two reports


@dataclass(frozen=True)
class ReferenceTrial:
    """How many references have been tried, and why the last one is refused, or empty. unavailable: why none can be
    tried on this machine, or empty. rewarded: the places of those that reward a degenerate solution, and its names."""

    num_tried: int
    refusal: str = ""
    unavailable: str = ""
    rewarded: tuple[tuple[int, str], ...] = ()


def try_references(references: Sequence[str], limit_s: float) -> Iterator[ReferenceTrial]:
    """Reports after every few references, until one is refused or the time is over."""
    end_s = time.monotonic() + limit_s
    rewarded: list[tuple[int, str]] = []
    with Verifier(TRIAL, processes=min(MAX_PROCESSES, os.cpu_count() or 1)) as verifier:
        for start in range(0, len(references), CHUNK):
            chunk = references[start : start + CHUNK]
            try:
                verdicts = verifier.score([EMPTY_SOLUTION] * len(chunk), list(chunk))
            except VerifierError as error:
                yield ReferenceTrial(start, unavailable=str(error))
                return
            for number, (reference, verdict) in enumerate(zip(chunk, verdicts, strict=True)):
                refusal = unclear_tests(reference)
                if not refusal and (verdict.reward or verdict.reason.endswith(NOT_USED)):
                    refusal = "an empty solution passes its tests"
                is_interrupted = verdict.is_timeout or verdict == DIED or verdict.reason.endswith("was killed")
                if not refusal and verdict.reward is None and not is_interrupted:
                    refusal = verdict.reason.removeprefix("unscorable: ")
                if verdict.reason.startswith(REWARDED):
                    rewarded.append((start + number, verdict.reason.removeprefix(REWARDED)))
                if refusal:
                    yield ReferenceTrial(start + number, refusal)
                    return
            yield ReferenceTrial(start + len(chunk), rewarded=tuple(rewarded))
            if time.monotonic() > end_s:
                return


def in_one_process(references: Sequence[str]) -> list[tuple[int, str]]:
    """The places of those whose tests run in the process of the response, which can fake their result, and why."""
    reasons = ("" if unclear_tests(one) else why_one_process(*split_reference(one)) for one in references)
    return [(place, reason) for place, reason in enumerate(reasons) if reason]
