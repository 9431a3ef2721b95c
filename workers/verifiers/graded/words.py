"""Partial credit for words: F1 of words as for SQuAD (arXiv 1606.05250), and ROUGE-L (Lin 2004).

F1 = 2PR / (P + R), with P and R the shares of the answer's and of the reference's words that match: as bags of words,
without case, punctuation and articles, for F1; as the longest common subsequence for ROUGE-L. Text alone decides.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from workers.verifiers.mathematics.extraction import final_answer, has_box
from workers.verifiers.scoring.verdicts import CORRECT, NO_REFERENCE, Verdict

MAX_CHARACTERS = 100_000
MAX_WORDS = 5000
TOO_MANY = f"more than {MAX_WORDS} words"
_ARTICLES = {"a", "an", "the"}
_DIGITS = 6  # of a reward
_ROUGE_WORD = re.compile(r"[^\W_]+")


def answer_text(response: str) -> str:
    """The part of a response that is compared: without thoughts; the last `<answer>`, box, or all of it.

    Empty if its thoughts are not closed, if its last box is not, or if there is nothing else.
    """
    text = response[-MAX_CHARACTERS:].rpartition("</think>")[2]
    if "<think>" in text:
        return ""
    for piece in reversed(text.split("</answer>")[:-1]):
        _, tag, content = piece.rpartition("<answer>")
        if tag:
            return content.strip()
    if has_box(text):
        return (final_answer(text) or "").strip()
    return text.strip()


def plain_words(text: str) -> list[str]:
    """The words in lower case, without punctuation and articles."""
    folded = "".join(
        " " if letter in "-/_" else letter
        for letter in unicodedata.normalize("NFKC", text).casefold()
        if letter in "-/_" or not unicodedata.category(letter).startswith("P")
    )
    return [word for word in folded.split() if word not in _ARTICLES]


def rouge_words(text: str) -> list[str]:
    """Runs of letters and digits in lower case."""
    return _ROUGE_WORD.findall(text.casefold())


def words_f1(answer: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of two bags of words; 1 for two empty ones."""
    common = sum((Counter(answer) & Counter(reference)).values())
    return _f1(common, len(answer), len(reference))


def rouge_l(answer: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest common subsequence of words."""
    return _f1(common_subsequence(answer, reference), len(answer), len(reference))


def common_subsequence(words: Sequence[str], others: Sequence[str]) -> int:
    """The length of the longest common subsequence. One bit for each word of `words` (Hyyrö 2004), so that a long pair
    takes milliseconds."""
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(words)) - 1
    row = full
    for word in others:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & full
    return len(words) - row.bit_count()


def _f1(common: int, length: int, reference_length: int) -> float:
    if not length or not reference_length:
        return float(length == reference_length)
    return 2 * common / (length + reference_length)


def words_verdict(completion: str, gold: str) -> Verdict:
    """F1 of the answer's words and the gold's."""
    return _verdict(plain_words(answer_text(completion)), plain_words(gold), words_f1)


def rouge_verdict(completion: str, gold: str) -> Verdict:
    """ROUGE-L of the answer and the gold."""
    return _verdict(rouge_words(answer_text(completion)), rouge_words(gold), rouge_l)


def _verdict(
    answer: list[str], reference: list[str], score: Callable[[Sequence[str], Sequence[str]], float]
) -> Verdict:
    if not reference:
        return NO_REFERENCE
    if len(answer) > MAX_WORDS:
        return Verdict(0.0, TOO_MANY)
    reward = round(score(answer, reference), _DIGITS)
    return CORRECT if reward == 1 else Verdict(reward, f"{reward:.3f} of 1")


def unclear_text(gold: str) -> str:
    """Why no answer can match; empty if one can."""
    words = len(rouge_words(gold))
    if not words:
        return "it has no words"
    return TOO_MANY if words > MAX_WORDS else ""
