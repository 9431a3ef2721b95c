"""The checks of IFEval's 25 instructions (arXiv 2311.07911), in its strict form: the response as it is.

A check gets the response and the instruction's arguments as IFEval names them. Keywords are compared as texts, and
sentences are divided by rules of our own, where the published checks take expressions and NLTK's model. Every
pattern is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from workers.verifiers.instructions.language import language_of

CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
PARAGRAPH_DIVIDER = "***"
RESPONSE_DIVIDER = "******"
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+(?:[-'’.]\w+)*")
# A sentence ends with . ! or ? (and quotes or brackets) before a space or the end.
_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s|$)|[。！？]+")
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|Inc|Ltd|Co|Corp|Fig|No|Vol|Ph\.D|e\.g|i\.e|approx|[ap]\.m)|\b[A-Z]|^\s*\d{1,3}"
    r"|\n\s*\d{1,3})\.$"
)


def count_sentences(text: str) -> int:
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


def _divided(text: str, divider: str) -> list[str] | None:
    """The parts between dividers; an empty one at the beginning or the end does not count. None if another is empty."""
    parts = [part.strip() for part in text.split(divider)]
    parts = parts[1:] if len(parts) > 1 and not parts[0] else parts
    parts = parts[:-1] if len(parts) > 1 and not parts[-1] else parts
    return parts if all(parts) else None


def _num_bullets(text: str) -> int:
    """Lines that begin with `*` and no second one, or with `-`."""
    lines = [line.lstrip() for line in text.split("\n")]
    return sum(line.startswith("-") or (line[:1] == "*" and len(line) > 1 and line[1] != "*") for line in lines)


def _num_highlights(text: str) -> int:
    """Texts between single or double asterisks on one line, with something in them."""
    single = re.findall(r"\*[^\n*]*\*", text)
    double = re.findall(r"\*\*[^\n*]*\*\*", text)
    return sum(bool(part.strip("*").strip()) for part in (*single, *double))


def first_word(paragraph: str) -> str:
    """In small letters, without quotes before it and punctuation after it."""
    word = (paragraph.split() or [""])[0].lstrip("'\"“‘")
    return re.split(r"[.,?!'\"”’]", word, maxsplit=1)[0].lower()


def _compares(count: int, relation: str, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def _has_first_word(text: str, num_paragraphs: int, nth_paragraph: int, word: str) -> bool:
    paragraphs = re.split(r"\n\n", text)
    count = sum(bool(paragraph.strip()) for paragraph in paragraphs)
    if nth_paragraph > count or nth_paragraph > len(paragraphs):
        return False
    paragraph = paragraphs[nth_paragraph - 1].strip()
    return bool(paragraph) and count == num_paragraphs and first_word(paragraph) == word.lower()


def _has_postscript(text: str, marker: str) -> bool:
    lowered = text.lower()
    if marker in ("P.P.S", "P.P.S."):
        return re.search(r"p\.\s?p\.\s?s", lowered) is not None
    if marker in ("P.S.", "P.S"):
        return re.search(r"p\.\s?s\.", lowered) is not None
    return marker.lower() in lowered


def _is_json(text: str) -> bool:
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _are_two_responses(text: str) -> bool:
    parts = _divided(text, RESPONSE_DIVIDER)
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def _num_paragraphs(text: str) -> int:
    """0 if one of them is empty."""
    return len(_divided(text, PARAGRAPH_DIVIDER) or ())


# By name; the arguments behind the text are those of the instruction, as IFEval names them.
CHECKS: dict[str, Callable[..., bool]] = {
    "keywords:existence": lambda text, keywords: all(word.lower() in text.lower() for word in keywords),
    "keywords:frequency": lambda text, keyword, frequency, relation: _compares(
        text.lower().count(keyword.strip().lower()), relation, frequency
    ),
    "keywords:forbidden_words": lambda text, forbidden_words: (
        not any(_has_word(text, word) for word in forbidden_words)
    ),
    "keywords:letter_frequency": lambda text, letter, let_frequency, let_relation: _compares(
        text.lower().count(letter.lower()), let_relation, let_frequency
    ),
    "language:response_language": lambda text, language: language_of(text) == language,
    "length_constraints:number_sentences": lambda text, num_sentences, relation: _compares(
        count_sentences(text), relation, num_sentences
    ),
    "length_constraints:number_paragraphs": lambda text, num_paragraphs: _num_paragraphs(text) == num_paragraphs,
    "length_constraints:number_words": lambda text, num_words, relation: _compares(
        len(_WORD.findall(text)), relation, num_words
    ),
    "length_constraints:nth_paragraph_first_word": lambda text, num_paragraphs, nth_paragraph, first_word: (
        _has_first_word(text, num_paragraphs, nth_paragraph, first_word)
    ),
    "detectable_content:number_placeholders": lambda text, num_placeholders: (
        len(re.findall(r"\[[^\n\[\]]*\]", text)) >= num_placeholders
    ),
    "detectable_content:postscript": lambda text, postscript_marker: _has_postscript(text, postscript_marker.strip()),
    "detectable_format:number_bullet_lists": lambda text, num_bullets: _num_bullets(text) == num_bullets,
    "detectable_format:constrained_response": lambda text: any(one in text for one in CONSTRAINED_RESPONSES),
    "detectable_format:number_highlighted_sections": lambda text, num_highlights: (
        _num_highlights(text) >= num_highlights
    ),
    "detectable_format:multiple_sections": lambda text, section_spliter, num_sections: (
        len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections
    ),
    "detectable_format:json_format": lambda text: _is_json(text),
    "detectable_format:title": lambda text: any(one.strip("<> \t") for one in re.findall(r"<<[^\n<>]+>>", text)),
    "combination:two_responses": lambda text: _are_two_responses(text),
    "combination:repeat_prompt": lambda text, prompt_to_repeat: (
        text.strip().lower().startswith(prompt_to_repeat.strip().lower())
    ),
    "startend:end_checker": lambda text, end_phrase: (
        text.strip().strip('"').lower().endswith(end_phrase.strip().lower())
    ),
    "startend:quotation": lambda text: len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"',
    "change_case:capital_word_frequency": lambda text, capital_frequency, capital_relation: _compares(
        sum(word.isupper() for word in _TOKEN.findall(text)), capital_relation, capital_frequency
    ),
    "change_case:english_capital": lambda text: text.isupper() and language_of(text) == "en",
    "change_case:english_lowercase": lambda text: text.islower() and language_of(text) == "en",
    "punctuation:no_comma": lambda text: "," not in text,
}
# Those that need to know a text's language.
LANGUAGE_CHECKS = {"language:response_language", "change_case:english_capital", "change_case:english_lowercase"}
