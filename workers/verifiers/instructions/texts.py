"""How instructions count a text: words, sentences, paragraphs, lists. Every pattern is linear in the text."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+(?:[-'’.]\w+)*")
# A sentence ends with . ! or ? (and quotes or brackets) before a space or the end.
_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s|$)|[。！？]+")
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|Inc|Ltd|Co|Corp|Fig|No|Vol|Ph\.D|e\.g|i\.e|approx|[ap]\.m)|\b[A-Z]|^\s*\d{1,3}"
    r"|\n\s*\d{1,3})\.$"
)


def num_words(text: str) -> int:
    """Runs of letters, digits and underscores."""
    return len(_WORD.findall(text))


def num_sentences(text: str) -> int:
    """Texts between ends of sentences that have a word. A full stop after an abbreviation, an initial or the number
    of a list ends none."""
    text = text.rstrip()
    count, start = 0, 0
    for match in _SENTENCE_END.finditer(text):
        stop = match.start() + 1
        is_middle = text[match.start()] == "." and _ABBREVIATION.search(text, max(0, stop - 12), stop)
        if is_middle and match.end() < len(text):
            continue
        count += _WORD.search(text, start, match.end()) is not None
        start = match.end()
    return count + (_WORD.search(text, start) is not None)


def num_capital_words(text: str) -> int:
    """Words with letters, all of them capital."""
    return sum(word.isupper() for word in _TOKEN.findall(text))


def divided(text: str, divider: str) -> list[str] | None:
    """The parts between dividers; an empty one at the beginning or the end does not count. None if another is empty."""
    parts = [part.strip() for part in text.split(divider)]
    parts = parts[1:] if len(parts) > 1 and not parts[0] else parts
    parts = parts[:-1] if len(parts) > 1 and not parts[-1] else parts
    return parts if all(parts) else None


def num_bullets(text: str) -> int:
    """Lines that begin with `*` and no second one, or with `-`."""
    lines = [line.lstrip() for line in text.split("\n")]
    return sum(line.startswith("-") or (line[:1] == "*" and len(line) > 1 and line[1] != "*") for line in lines)


def num_highlights(text: str) -> int:
    """Texts between single or double asterisks on one line, with something in them."""
    single = re.findall(r"\*[^\n*]*\*", text)
    double = re.findall(r"\*\*[^\n*]*\*\*", text)
    return sum(bool(part.strip("*").strip()) for part in (*single, *double))


def first_word(paragraph: str) -> str:
    """In small letters, without quotes before it and punctuation after it."""
    word = (paragraph.split() or [""])[0].lstrip("'\"“‘")
    return re.split(r"[.,?!'\"”’]", word, maxsplit=1)[0].lower()
