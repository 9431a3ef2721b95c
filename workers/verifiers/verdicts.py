"""A verdict on one response, and the ones that every kind of verifier gives.

Part of the rewards' station. An answer that cannot be scored is not wrong: its reward is None, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from workers.verifiers.mathematics.answers import MAX_ANSWER_CHARACTERS

Pair = tuple[str, str]  # answer, reference answer: what a child process is asked about


@dataclass(frozen=True)
class Verdict:
    """`reward` is 1.0, 0.0 or None (unscorable); `reason` says why in a few words."""

    reward: float | None
    reason: str
    is_timeout: bool = False


RIGHT = Verdict(1.0, "right")
WRONG = Verdict(0.0, "wrong")
NO_ANSWER = Verdict(0.0, "no closed \\boxed{...} and no stated answer")
NO_REFERENCE = Verdict(0.0, "the reference answer is empty")
TOO_LONG = Verdict(0.0, f"answer longer than {MAX_ANSWER_CHARACTERS} characters")
DIED = Verdict(None, "unscorable: the verifier process died")
