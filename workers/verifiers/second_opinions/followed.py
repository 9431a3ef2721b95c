"""The second opinion on instructions of IFEval: other code for those that can be checked without any doubt.

A response is incorrect if one of these is not followed, and correct if all of its instructions are among them and
followed. It reads text by hand, where the first verifier has expressions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

_Options = Mapping[str, Any]
_Opinion = Callable[[str, _Options], bool | None]


def instructions_opinion(gold: str, response: str) -> bool | None:
    """Whether every instruction is followed; None if that is unclear."""
    try:
        pairs = [(str(name), dict(options)) for name, options in json.loads(gold)]
        text = _without_thoughts(response)
        opinions = [_OPINIONS[name](text, options) if name in _OPINIONS else None for name, options in pairs]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not pairs or not text.strip():
        return False if pairs and not response.strip() else None
    if False in opinions:
        return False
    return None if None in opinions else True


def _without_thoughts(response: str) -> str:
    """Error: ValueError, where they are not one closed part at the beginning."""
    if "think>" not in response:
        return response
    thoughts, mark, text = response.partition("</think>")
    if not mark or not thoughts.startswith("<think>") or "think>" in text:
        raise ValueError
    return text[2:] if text.startswith("\n\n") else text


def _words(text: str) -> list[str]:
    """Runs of letters, digits and underscores."""
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()


def _compares(number: int, relation: str, bound: int) -> bool:
    return {"less than": number < bound, "at least": number >= bound}[relation]


def _num_words(text: str, options: _Options) -> bool | None:
    return _compares(len(_words(text)), options["relation"], options["num_words"]) if text.isascii() else None


def _no_forbidden_word(text: str, options: _Options) -> bool | None:
    forbidden = [word.lower() for word in options["forbidden_words"]]
    if not text.isascii() or not all(word.isascii() and _words(word) == [word] for word in forbidden):
        return None
    return not set(forbidden) & set(_words(text.lower()))


def _num_occurrences(text: str, part: str) -> int:
    """From left to right, without overlap."""
    count, place = 0, 0
    while (place := text.find(part, place)) >= 0:
        count, place = count + 1, place + len(part)
    return count


def _keyword_frequency(text: str, options: _Options) -> bool:
    number = _num_occurrences(text.lower(), options["keyword"].strip().lower())
    return _compares(number, options["relation"], options["frequency"])


def _letter_frequency(text: str, options: _Options) -> bool | None:
    letter = options["letter"].lower()
    number = sum(one == letter for one in text.lower())
    return _compares(number, options["let_relation"], options["let_frequency"]) if len(letter) == 1 else None


def _num_paragraphs(text: str, options: _Options) -> bool | None:
    if "****" in text or not text.strip().strip("*"):
        return None
    parts = text.split("***")
    inner = [part for number, part in enumerate(parts) if part.strip() or 0 < number < len(parts) - 1]
    return all(part.strip() for part in inner) and len(inner) == options["num_paragraphs"]


def _is_quoted(text: str, options: _Options) -> bool:
    quoted = text.strip()
    return len(quoted) >= 2 and quoted.startswith('"') and quoted.endswith('"')


def _has_json(text: str, options: _Options) -> bool | None:
    if "`" in text or text.strip() != text.strip(" \t\r\n"):  # spaces that JSON does not know
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


_OPINIONS: dict[str, _Opinion] = {
    "punctuation:no_comma": lambda text, options: text.count(",") == 0,
    "keywords:existence": lambda text, options: all(text.lower().find(one.lower()) >= 0 for one in options["keywords"]),
    "keywords:frequency": _keyword_frequency,
    "keywords:forbidden_words": _no_forbidden_word,
    "keywords:letter_frequency": _letter_frequency,
    "length_constraints:number_words": _num_words,
    "length_constraints:number_paragraphs": _num_paragraphs,
    "startend:quotation": _is_quoted,
    "detectable_format:json_format": _has_json,
    "detectable_format:constrained_response": lambda text, options: any(
        f"My answer is {word}." in text for word in ("yes", "no", "maybe")
    ),
    "combination:repeat_prompt": lambda text, options: (
        text.strip().lower()[: len(options["prompt_to_repeat"].strip())] == options["prompt_to_repeat"].strip().lower()
    ),
    # A text with a letter of the other case is neither; of the rest the language decides, which only one library knows.
    "change_case:english_capital": lambda text, options: False if text != text.upper() else None,
    "change_case:english_lowercase": lambda text, options: False if text != text.lower() else None,
}
