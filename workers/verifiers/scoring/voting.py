"""The votes of a question's samples, for maj@k, and the answer that a page shows.

Correct samples have the same answer: all are equal to the reference. Incorrect ones have the same answer if their
cleaned texts are the same, or the same plain number (0.5 and \\frac{1}{2}). Incorrect answers that only algebra would
find equal count as different, which only splits incorrect votes; comparing all of them would cost k^2 verifications.
"""

from __future__ import annotations

from collections.abc import Sequence

from workers.contract.advantages import REWARD_MAX
from workers.contract.sample_estimators import Vote
from workers.contract.verifier_kinds import RULES, ResponseExtraction, VerifierKind
from workers.verifiers.mathematics.answers import clean
from workers.verifiers.mathematics.extraction import after_thoughts, final_answer
from workers.verifiers.mathematics.plain_numbers import number
from workers.verifiers.mathematics.reading import answer_in
from workers.verifiers.short_answers.multiple_choice import letter

MAX_ANSWER = 200  # characters of an answer


def stated_answer(verifier: VerifierKind, text: str, extraction: ResponseExtraction = "strict") -> str:
    """The answer in a response, empty if there is none; of multiple choice its letter, if there is one."""
    rules = RULES[verifier]
    if not rules.votes:
        return ""  # programs are not compared, nor responses of unknown form
    text = after_thoughts(text)
    answer = answer_in(text, extraction) if rules.is_flexible else final_answer(text)
    if answer is None and rules.votes == "whole" and "\\boxed" not in text:
        answer = text
    answer = (answer or "").strip()
    return letter(answer) or answer if verifier == "choice" else answer


def vote(
    verifier: VerifierKind,
    texts: Sequence[str],
    rewards: Sequence[float | None],
    extraction: ResponseExtraction = "strict",
) -> tuple[list[Vote], str]:
    """The votes of a question's samples, and the most frequent answer (of equally frequent ones the first).

    Unscorable samples and incorrect ones without an answer have no vote.
    """
    counts: dict[object, int] = {}
    words: dict[object, str] = {}
    for text, reward in zip(texts, rewards, strict=True):
        if reward is None:
            continue
        answer = stated_answer(verifier, text, extraction)
        is_correct = reward >= REWARD_MAX
        if not answer and not is_correct:
            continue
        key = True if is_correct else _key(answer)
        counts[key] = counts.get(key, 0) + 1
        words.setdefault(key, answer)
    votes = [Vote(count, key is True) for key, count in counts.items()]
    most = max(counts, key=lambda key: counts[key], default=None)
    return votes, words.get(most, "")[:MAX_ANSWER]


def _key(answer: str) -> str:
    cleaned = clean(answer[: 5 * MAX_ANSWER])
    value = number(cleaned)
    return cleaned if value is None else f"= {value}"
