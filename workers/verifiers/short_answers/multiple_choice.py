"""Multiple choice: the letter, A to J, of a response, compared with the letter of the reference answer.

Text alone decides; no process is needed.
"""

from __future__ import annotations

import re

from workers.verifiers.mathematics.answers import spoken_answer
from workers.verifiers.mathematics.extraction import has_box, shown
from workers.verifiers.mathematics.reading import answer_in
from workers.verifiers.mathematics.statements.negation_words import is_unstated
from workers.verifiers.scoring.verdicts import CORRECT, INCORRECT, NO_ANSWER, NO_REFERENCE, Verdict

NO_LETTER = Verdict(0.0, "no single letter from A to J")
MAX_CHARACTERS = 300

_STATED = re.compile(
    r"(?:\b(?:answer|option|choice)\b\W{0,4}(?:is\b|:)|\b(?:answer|I\s+(?:\w+\s+)?(?:choose|pick|select))(?=\s+(?:option\s+)?[(*]{0,3}[A-J]\b)"
    r"|\b(?:antwort|réponse|respuesta|resposta|risposta|ответ)\s*(?:ist|lautet|est|es|é|è|:)|(?:答案|答え)\s*[是为為はが：:]|选)"
    r"[\s:：*]*(?=([^\n]{1,200}))",
    re.IGNORECASE,
)
_NAMED = re.compile(r"^(?:the\s+)?(?:(?:correct|final)\s+)?(?:answer|option|choice)\s*(?:is|:)?\s*", re.IGNORECASE)
# A letter alone; in brackets; before a bracket, a full stop or a colon; or before the reason for it.
_ALONE = re.compile(r"([A-Ja-j])")
_BRACKETED = re.compile(r"[(\[]\s*([A-Ja-j])\s*[)\]][.:]?(.*)", re.DOTALL)
_MARKED = re.compile(r"([A-J])(?:\s*[).:\]]|\s+(?=(?:because|since|as|which)\b))(.*)", re.DOTALL)
_SECOND = re.compile(r"\s*(?:,|/|&|or\b|and\b)|.*[(\[]\s*[A-Ja-j]\s*[)\]]", re.DOTALL)


def letter(text: str) -> str | None:
    """The one letter that a short text names, in upper case; None if it names none or several."""
    text = spoken_answer(text[:MAX_CHARACTERS].replace("**", "")).strip("* ")
    text = _NAMED.sub("", text)
    if match := _ALONE.fullmatch(text):
        return match[1].upper()
    match = _BRACKETED.fullmatch(text) or _MARKED.fullmatch(text)
    if match is None or _SECOND.match(match[2]):
        return None
    return match[1].upper()


def choice_verdict(completion: str, gold: str) -> Verdict:
    """Compares the letter of the last box, else of the last stated answer, else of the response, with the gold's."""
    if not gold.strip():
        return NO_REFERENCE
    text = shown(completion[-20_000:])
    is_boxed = has_box(completion)
    stated = [
        match[1] for match in _STATED.finditer(text) if not is_unstated(text[max(0, match.start() - 400) : match.end()])
    ]
    if stated and not is_boxed:
        # "It is (B). (A) is too small." states B.
        phrase = re.split(r"\.\s|\.$|。", stated[-1])[0]
    else:
        phrase = answer_in(completion, "strict") or ("" if is_boxed else text.strip())
        if not phrase:
            return NO_ANSWER
    option = letter(phrase)
    if option is None:
        return NO_LETTER
    return CORRECT if option == letter(gold) else INCORRECT


def unclear_choice(gold: str) -> str:
    """Why no response can match the gold; empty if one can."""
    return "" if letter(gold) else NO_LETTER.reason
