"""Rewards for the form of a response: a box, tags, its length, its language. They need no reference answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from workers.verifiers.instructions.language import language_of
from workers.verifiers.mathematics.extraction import final_answer, has_box

MIN_LETTERS = 12  # in a text with fewer no language is recognized
PIECE_LETTERS = 60  # of a response, classified on its own, so that a mixture is seen
MAX_SEARCHED = 20_000  # characters of a response; what follows is not read
DENSE = 3  # a letter of a script without spaces says as much as so many others
_NO_PROSE = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`|\$\$[^$]*\$\$|\$[^$\n]*\$|\\\[[^\[\]]*\\\]|\\\([^()\n]*\\\)"
    r"|https?://\S+|</?[A-Za-z_-]{1,40}>|\\[A-Za-z]+",
    re.DOTALL,
)
_SENTENCE = re.compile(r"[^.!?\n。！？]+[.!?\n。！？]*")


def boxed_reward(response: str) -> float:
    """1 if the last box of the response is closed and not empty."""
    return float(has_box(response) and bool((final_answer(response) or "").strip()))


def tags_reward(response: str, tags: Sequence[str]) -> float:
    """1 if the response consists of these tags, each once and in this order, with text in each."""
    rest = response.strip()
    for tag in tags:
        start, end = f"<{tag}>", f"</{tag}>"
        if rest.count(start) != 1 or rest.count(end) != 1 or not rest.startswith(start):
            return 0.0
        content, _, rest = rest[len(start) :].partition(end)
        if not content.strip() or any(re.search(rf"</?{re.escape(other)}>", content) for other in tags):
            return 0.0
        rest = rest.strip()
    return float(not rest)


def length_reward(num_tokens: int, full_length: int, limit: int) -> float:
    """1 up to full_length tokens, then linear to 0 at `limit`."""
    if num_tokens <= full_length:
        return 1.0
    return max(0.0, (limit - num_tokens) / (limit - full_length)) if full_length < limit else 0.0


def language_reward(response: str, language: str, question: str) -> float:
    """The share of the response's prose that is in a language, by letters; 0 without any prose.

    language: a code of ISO 639, or `question` for the question's own; 1 for every response if that has too few letters.
    Code, formulas, tags and addresses do not count as prose; thoughts do.
    """
    target = _language_of_question(question) if language == "question" else language
    if not target:
        return 1.0
    pieces = list(_pieces(_prose(response[:MAX_SEARCHED])))
    letters = [_num_letters(piece) for piece in pieces]
    if sum(letters) < MIN_LETTERS:
        return 0.0
    right = sum(number for piece, number in zip(pieces, letters, strict=True) if language_of(piece) == target)
    return round(right / sum(letters), 6)


@lru_cache(maxsize=4096)
def _language_of_question(question: str) -> str:
    """Its code; empty if it has too few letters."""
    text = _prose(question)
    return language_of(text) if _num_letters(text) >= MIN_LETTERS else ""


def _prose(text: str) -> str:
    """Without code, formulas, tags, addresses and commands of LaTeX."""
    return _NO_PROSE.sub(" ", text)


def _num_letters(text: str) -> int:
    """Letters; those of scripts without spaces, such as Chinese, count more."""
    return sum(DENSE if "\u2e80" <= letter <= "\uffdc" else 1 for letter in text if letter.isalpha())


def _pieces(text: str) -> Iterator[str]:
    """Sentences, together until they have enough letters to tell their language; the rest belongs to the last one."""
    done: list[str] = []
    piece = ""
    for sentence in _SENTENCE.findall(text):
        piece += sentence
        if _num_letters(piece) >= PIECE_LETTERS:
            done.append(piece)
            piece = ""
    if piece and done:
        done[-1] += piece
    elif piece:
        done.append(piece)
    yield from done
