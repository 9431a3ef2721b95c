"""Which samples of a question gave the same answer: what maj@k counts, and the answer that a page shows.

Right samples are one answer: the verifier has found each of them equal to the reference. Wrong ones are the same where
their cleaned texts are, or are the same plain number (0.5 and \\frac{1}{2}). Wrong ones that only algebra would find
equal stay apart, which can only split wrong votes; comparing every two of them would cost k^2 verifications.
"""

from __future__ import annotations

from collections.abc import Sequence

from workers.contract.estimators import Vote
from workers.verifiers.choice import letter
from workers.verifiers.mathematics.answers import clean, final_answer, number
from workers.verifiers.service import REWARD_MAX

MAX_ANSWER = 200  # characters of an answer that are kept
# Verifiers whose answer may be the whole response.
_WHOLE = ("exact", "regex", "choice")


def spoken_answer(verifier: str, text: str) -> str:
    """The answer in a response, or an empty text where it has none; of multiple choice its letter, if it has one."""
    if verifier == "python":
        return ""  # code is no answer that could be voted for
    answer = final_answer(text)
    if answer is None and verifier in _WHOLE and "\\boxed" not in text:
        answer = text
    answer = (answer or "").strip()
    return letter(answer) or answer if verifier == "choice" else answer


def vote(verifier: str, texts: Sequence[str], rewards: Sequence[float | None]) -> tuple[list[Vote], str]:
    """The votes of a question's scored samples, and the most frequent answer (of equally frequent ones the first).

    A sample that could not be scored has no vote, and neither has a wrong one without an answer.
    """
    counts: dict[object, int] = {}
    words: dict[object, str] = {}
    for text, reward in zip(texts, rewards, strict=True):
        if reward is None:
            continue
        answer = spoken_answer(verifier, text)
        is_right = reward >= REWARD_MAX
        if not answer and not is_right:
            continue
        key = True if is_right else _key(answer)
        counts[key] = counts.get(key, 0) + 1
        words.setdefault(key, answer)
    votes = [Vote(count, key is True) for key, count in counts.items()]
    most = max(counts, key=lambda key: counts[key], default=None)
    return votes, words.get(most, "")[:MAX_ANSWER]


def _key(answer: str) -> str:
    cleaned = clean(answer[: 5 * MAX_ANSWER])
    value = number(cleaned)
    return cleaned if value is None else f"= {value}"
