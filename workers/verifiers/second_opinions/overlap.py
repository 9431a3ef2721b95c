"""The second opinions on F1 of words and ROUGE-L, of texts in ASCII: sorted lists in place of counters, and the table
of the longest common subsequence in place of bits."""

from __future__ import annotations

import string
from collections.abc import Callable

from workers.verifiers.second_opinions.plain_answers import plain_answer

MAX_TABLE = 1_000_000  # entries
MAX_WORDS = 5000  # more are not rewarded by the first verifier
# Unicode's punctuation among the signs of ASCII; the others, such as + and $, are symbols and belong to words.
_PUNCTUATION = set(string.punctuation) - set("$+<=>^`|~")


def words_opinion(gold: str, response: str) -> float | None:
    """F1 of the words; None if unclear."""
    return _opinion(gold, response, _words, _num_common)


def rouge_opinion(gold: str, response: str) -> float | None:
    """ROUGE-L; None if unclear."""
    return _opinion(gold, response, _runs, _longest_common)


def _opinion(
    gold: str,
    response: str,
    split: Callable[[str], list[str]],
    num_common: Callable[[list[str], list[str]], int | None],
) -> float | None:
    answer = plain_answer(response)
    if answer is None or not answer.isascii() or not gold.isascii():
        return None
    words, reference = split(answer), split(gold)
    if not reference or len(words) > MAX_WORDS or (common := num_common(words, reference)) is None:
        return None
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(reference)
    return 2 * precision * recall / (precision + recall)


def _words(text: str) -> list[str]:
    letters = [" " if letter in "-/_" else letter for letter in text if letter in "-/_" or letter not in _PUNCTUATION]
    return [word for word in "".join(letters).lower().split() if word not in ("a", "an", "the")]


def _runs(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() else " " for letter in text).lower().split()


def _num_common(words: list[str], reference: list[str]) -> int:
    """Of two sorted lists, which are walked through together."""
    own, others, count = sorted(words), sorted(reference), 0
    while own and others:
        if own[-1] == others[-1]:
            count += 1
            own.pop()
            others.pop()
        elif own[-1] > others[-1]:
            own.pop()
        else:
            others.pop()
    return count


def _longest_common(words: list[str], reference: list[str]) -> int | None:
    """None if the table would be too large."""
    if len(words) * len(reference) > MAX_TABLE:
        return None
    row = [0] * (len(reference) + 1)
    for word in words:
        before = row
        row = [0]
        for place, other in enumerate(reference):
            row.append(before[place] + 1 if word == other else max(before[place + 1], row[place]))
    return row[-1]
