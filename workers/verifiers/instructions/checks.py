"""The checks of IFEval's 25 instructions (arXiv 2311.07911), in its strict form: the response as it is.

A check gets the response and the instruction's arguments as IFEval names them. Keywords are compared as texts, and
sentences are divided by rules of our own, where the published checks take expressions and NLTK's model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from workers.verifiers.instructions.language import language_of
from workers.verifiers.instructions.texts import (
    divided,
    first_word,
    num_bullets,
    num_capital_words,
    num_highlights,
    num_sentences,
    num_words,
)

CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
PARAGRAPH_DIVIDER = "***"
RESPONSE_DIVIDER = "******"


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


def _num_sections(text: str, word: str) -> int:
    return len(re.findall(rf"{re.escape(word)}\s?\d+", text))


def _is_json(text: str) -> bool:
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(text: str) -> bool:
    return any(title.strip("<> \t") for title in re.findall(r"<<[^\n<>]+>>", text))


def _are_two_responses(text: str) -> bool:
    parts = divided(text, RESPONSE_DIVIDER)
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def _num_paragraphs(text: str) -> int:
    """0 if one of them is empty."""
    return len(divided(text, PARAGRAPH_DIVIDER) or ())


CHECKS: dict[str, Callable[[str, dict[str, Any]], bool]] = {
    "keywords:existence": lambda text, options: all(word.lower() in text.lower() for word in options["keywords"]),
    "keywords:frequency": lambda text, options: _compares(
        text.lower().count(options["keyword"].strip().lower()), options["relation"], options["frequency"]
    ),
    "keywords:forbidden_words": lambda text, options: (
        not any(_has_word(text, word) for word in options["forbidden_words"])
    ),
    "keywords:letter_frequency": lambda text, options: _compares(
        text.lower().count(options["letter"].lower()), options["let_relation"], options["let_frequency"]
    ),
    "language:response_language": lambda text, options: language_of(text) == options["language"],
    "length_constraints:number_sentences": lambda text, options: _compares(
        num_sentences(text), options["relation"], options["num_sentences"]
    ),
    "length_constraints:number_paragraphs": lambda text, options: _num_paragraphs(text) == options["num_paragraphs"],
    "length_constraints:number_words": lambda text, options: _compares(
        num_words(text), options["relation"], options["num_words"]
    ),
    "length_constraints:nth_paragraph_first_word": lambda text, options: _has_first_word(
        text, options["num_paragraphs"], options["nth_paragraph"], options["first_word"]
    ),
    "detectable_content:number_placeholders": lambda text, options: (
        len(re.findall(r"\[[^\n\[\]]*\]", text)) >= options["num_placeholders"]
    ),
    "detectable_content:postscript": lambda text, options: _has_postscript(text, options["postscript_marker"].strip()),
    "detectable_format:number_bullet_lists": lambda text, options: num_bullets(text) == options["num_bullets"],
    "detectable_format:constrained_response": lambda text, options: any(one in text for one in CONSTRAINED_RESPONSES),
    "detectable_format:number_highlighted_sections": lambda text, options: (
        num_highlights(text) >= options["num_highlights"]
    ),
    "detectable_format:multiple_sections": lambda text, options: (
        _num_sections(text, options["section_spliter"].strip()) >= options["num_sections"]
    ),
    "detectable_format:json_format": lambda text, options: _is_json(text),
    "detectable_format:title": lambda text, options: _has_title(text),
    "combination:two_responses": lambda text, options: _are_two_responses(text),
    "combination:repeat_prompt": lambda text, options: (
        text.strip().lower().startswith(options["prompt_to_repeat"].strip().lower())
    ),
    "startend:end_checker": lambda text, options: (
        text.strip().strip('"').lower().endswith(options["end_phrase"].strip().lower())
    ),
    "startend:quotation": lambda text, options: len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"',
    "change_case:capital_word_frequency": lambda text, options: _compares(
        num_capital_words(text), options["capital_relation"], options["capital_frequency"]
    ),
    "change_case:english_capital": lambda text, options: text.isupper() and language_of(text) == "en",
    "change_case:english_lowercase": lambda text, options: text.islower() and language_of(text) == "en",
    "punctuation:no_comma": lambda text, options: "," not in text,
}
# Those that need to know a text's language.
LANGUAGE_CHECKS = {"language:response_language", "change_case:english_capital", "change_case:english_lowercase"}
