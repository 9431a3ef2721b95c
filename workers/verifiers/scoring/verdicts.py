"""The verdict on one response, and the verdicts that all kinds of verifier share.

An unscorable answer is not incorrect: its reward is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.verifiers.mathematics.extraction import MAX_ANSWER_CHARACTERS

Query = tuple[str, str]  # an answer and the gold that a child process compares it with


@dataclass(frozen=True)
class JudgeCall:
    """What asking a judge about one response took; nothing where the reward was known from an equal response.

    cost: in the currency of the judge's prices.
    """

    seconds: float
    cost: float
    is_cached: bool = False


@dataclass(frozen=True)
class Verdict:
    """`reward` is 1.0, 0.0, between them for partial credit, or None (unscorable); `reason` says why in a few words.

    parts: further numbers that a reward function returned, by name.  call: of a judge.
    """

    reward: float | None
    reason: str
    is_timeout: bool = False
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)
    call: JudgeCall | None = None


CORRECT = Verdict(1.0, "correct")
INCORRECT = Verdict(0.0, "incorrect")
NO_ANSWER = Verdict(0.0, "no closed \\boxed{...} and no stated answer")
NO_NUMBER = Verdict(0.0, "no box, no stated answer and no number")
NO_REFERENCE = Verdict(0.0, "the reference answer is empty")
TOO_LONG = Verdict(0.0, f"answer longer than {MAX_ANSWER_CHARACTERS} characters")
DIED = Verdict(None, "unscorable: the verifier process died")
