r"""The formula that a response without a box and without a stated answer ends with: `Hence $x=42$.`

It counts if nothing follows it and the sentence neither denies nor supposes it. Several with only commas, `and` or
`or` between them are a list. Standard library only; every pattern looks at a bounded part of the response's end.
"""

from __future__ import annotations

import re

from workers.verifiers.mathematics.extraction import formula_at_end
from workers.verifiers.mathematics.plain_numbers import number
from workers.verifiers.mathematics.statements.negation_words import doubts, is_unstated

MAX_FORMULAS = 12
_TAIL = 1000  # characters of a sentence
_CLOSING_SIGNS = " \t\r\n.!*"

_SENTENCE = re.compile(r"(?:[.!?][\s)\]*]+|\n\s*|(?:\$\$|\\\])\s*)(?=[A-Z\[(])")
_JOINT = re.compile(r"(?:\s*[,;]?\s*|\s*,?\s+(?:and|or)\s+)$")
_ROWS = re.compile(r"\\begin\s*\{(aligned|align\*?|gathered|gather\*?|split)\}(.*)\\end\s*\{\1\}", re.DOTALL)
_STEP = re.compile(
    r"\\\\(?:\s*\[[^\[\]]*\])?|\\(?:Rightarrow|Longrightarrow|implies|Leftrightarrow|Longleftrightarrow|iff)(?![a-zA-Z])"
)
_NAME = re.compile(r"\s*([^=<>]*[a-zA-Z][^=<>]*)=")
_RANGE = re.compile(r"\b(?:from|between)\s*$", re.IGNORECASE)
# Before a formula: it says where something holds, or about how much, and what stands before that is the answer.
_ASIDE = re.compile(
    r"\b(?:when|where|if|at|for|by|with|because|since|as|using|about|approximately|roughly)(?:\s+(?:all|any|some|every|each))?\s*$",
    re.IGNORECASE,
)
# Before a formula: it is a bound, a relative, or tried.
_NOT_EQUAL = re.compile(
    r"\b(?:at\s+(?:least|most)|near|far\s+from|exceeds?|differs?\s+from|divides|(?:divisible|reached|attained|achieved)\s+by"
    r"|(?:multiples?|divisors?|factors?|square|cube|root|half|third)\s+of|twice|double|triple|congruent\s+to|prime\s+to"
    r"|(?:could|might|may)(?:\s+\w+)?\s+be|let|consider|check|for\s+example,?)"
    r"(?:\s+that)?(?:\s+be)?(?:\s+equal(?:\s+to)?)?\s*$",
    re.IGNORECASE,
)
_END_OF_PROOF = re.compile(
    r"(?:\\q?quad(?![a-z])|[\s.~])*\\(?:Box|(?:black)?square|qed)\s*$|[∎■□✓✔✅]$|\bQ\.?E\.?D$|\n-{3,}$"
    r"|,?\s+as\s+(?:desired|required|claimed|expected)$"
)
_TRIED = re.compile(r"\s*(?:(?:now|first|next|then)\s+)?(?:let|consider|imagine|if)\b", re.IGNORECASE)


def closing_formula(text: str, *, is_list: bool) -> str | None:
    """The formula at the end, several as a list; empty if it is denied, tried or a working; None if there is none.

    is_list: whether the reference is one. Else `$x=3$ and $y=4$` ends in the value of y, which has a name of its own.
    """
    formulas, before = _formulas(text)
    if not formulas:
        return None
    # "Wait, that is wrong: $43$." denies another value.
    clause = before.rpartition(":")[2] if len(formulas) == 1 else before
    is_denied = (
        denies_list(clause) or is_unstated(before) or _ASIDE.search(before[-40:]) or _NOT_EQUAL.search(before[-60:])
    )
    if is_denied or _TRIED.match(_sentence_before(before)):
        return ""
    names = [match[1].strip() if (match := _NAME.match(formula)) else "" for formula in formulas]
    is_of_last = not is_list and names[-1] and names[-1] not in names[:-1]
    return _last_step(formulas[-1]) if is_of_last or len(formulas) == 1 else ", ".join(map(_last_step, formulas))


def _last_step(formula: str) -> str:
    r"""The last row of several, and what follows the last \Rightarrow; nothing where plain numbers are enumerated."""
    if (rows := _ROWS.search(formula)) is None and "\\begin" in formula:
        return formula
    steps = [step.strip(" \t\r\n&~").rstrip(" .") for step in _STEP.split(rows[2] if rows else formula)]
    steps = [step for step in steps if step]
    is_enumerated = len(steps) > 1 and all(number(step) is not None for step in steps)
    return "" if is_enumerated or not steps else steps[-1].replace("&", " ")


def without_aside(text: str) -> str:
    """A text without the formula at its end if that says only where or about: `It is $42$, attained at $x=3$.`"""
    formulas, before = _formulas(text)
    return before if formulas and _ASIDE.search(before[-40:]) else text


def denies_list(before: str) -> bool:
    """Whether the sentence before some values denies or supposes them, or gives a range by them."""
    return doubts(_sentence_before(before)) or _RANGE.search(before[-20:]) is not None


def _sentence_before(text: str) -> str:
    """The beginning of the sentence that a text breaks off in."""
    tail = text[-_TAIL:]
    return tail[max((match.end() for match in _SENTENCE.finditer(tail)), default=0) :]


def _formulas(text: str) -> tuple[list[str], str]:
    """The formulas at the end with only commas, `and` or `or` between them, in order, and the text before them."""
    formulas: list[str] = []
    before = text = _without_end_of_proof(text.rstrip(_CLOSING_SIGNS)).rstrip(_CLOSING_SIGNS)
    while len(formulas) < MAX_FORMULAS and (ending := formula_at_end(text)) is not None:
        formula = _without_end_of_proof(ending[0]).rstrip(" .~")
        if not formula and not formulas:  # $\Box$
            text = ending[1].rstrip(_CLOSING_SIGNS)
            continue
        formulas.append(formula)
        before = ending[1].rstrip("* ")
        joint = _JOINT.search(ending[1][-40:])
        if joint is None:
            break
        text = ending[1][: -len(joint[0])] if joint[0] else ending[1]
    return formulas[::-1], before


def _without_end_of_proof(text: str) -> str:
    match = _END_OF_PROOF.search(text[-60:])
    return text[: -len(match[0])] if match else text
