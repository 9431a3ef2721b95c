"""The verifier of instruction following: correct if the response follows every instruction of its question.

The share of instructions that it follows is the further number `followed`. Text alone decides.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from workers.verifiers.instructions.checks import CHECKS, LANGUAGE_CHECKS
from workers.verifiers.instructions.language import LIBRARY, is_available
from workers.verifiers.instructions.reference import InstructionError, read_reference
from workers.verifiers.scoring.verdicts import Verdict

MAX_CHARACTERS = 200_000
PART = "followed"


@lru_cache(maxsize=4096)
def _instructions(gold: str) -> list[tuple[str, dict[str, Any]]]:
    return read_reference(gold)


def instructions_verdict(completion: str, gold: str) -> Verdict:
    """1 if every instruction is followed, else 0; thoughts in `<think>` do not count, nor does an empty response."""
    if reason := unclear_instructions(gold):
        return Verdict(None, f"unscorable: {reason}")
    text = completion[-MAX_CHARACTERS:].rpartition("</think>")[2]
    text = "" if "<think>" in text else text.removeprefix("\n\n") if "</think>" in completion else text
    names = _instructions(gold)
    missed = [name for name, options in names if not text.strip() or not CHECKS[name](text, **options)]
    share = round(1 - len(missed) / len(names), 6)
    reason = f"not followed: {', '.join(missed)}"[:200] if missed else "correct"
    return Verdict(float(not missed), reason, parts={PART: share})


def unclear_instructions(gold: str) -> str:
    """Why no response can be checked; empty if one can."""
    try:
        names = {name for name, _ in _instructions(gold)}
    except InstructionError as error:
        return str(error)
    if names & LANGUAGE_CHECKS and not is_available():
        return f"{min(names & LANGUAGE_CHECKS)} needs {LIBRARY}, which is not installed here: pip install {LIBRARY}"
    return ""
