r"""How a response without a box and without a stated answer ends: its closing formula, or a list of them.

`Therefore, $x=5$ or $x=-2$.` ends in a list; `$n=4$, as required.` and `$n=4$. (We can check that it works.)` end in
`$n=4$`, because such remarks say nothing else. A closing formula of several lines concludes with the last of them.
Standard library only; every pattern looks at a bounded part of the response's end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workers.verifiers.mathematics.extraction import formula_at_end
from workers.verifiers.mathematics.plain_numbers import number
from workers.verifiers.mathematics.units import split_unit

MAX_FORMULAS = 12
_TAIL = 1000  # characters of a remark
_MOST_REMARKS = 6

_ENDS = ("$", "\\)", "\\]")
_PICTURE = re.compile(r"(?:<img[^<>\n]{0,200}>|!\[[^\]\n]{0,200}\]\([^()\n]{0,300}\))$")
_SENTENCE = re.compile(r"(?:[.!?][\s)\]]+|\n\s*|(?:\$\$|\\\])\s*)(?=[A-Z\[(])")
_CHECK = re.compile(
    r"(?:(?:(?:And|Indeed|Finally),?\s+)?[Ww]e\s+(?:can|could|may)\s+(?:(?:easily|also|now|then)\s+)?(?:check|verify|confirm)"
    r"\s+that\s+(?:this|it|these|they|both|all|each)(?:\s+(?:value|values|solution|solutions|function|functions))?"
    r"(?:\s+(?:indeed|does|do|also))?\s+(?:works?|holds?|(?:is|are)\s+(?:indeed\s+)?(?:valid|correct|attainable|achievable)"
    r"|satisf(?:y|ies)\s+(?:the|all|both)\s[a-z ]{1,40})"
    r"|This\s+(?:completes|concludes|finishes)\s+(?:the|our)\s+(?:proof|argument|solution|problem))$"
)
# A remark in brackets begins with one of these words: others, such as `or`, may name another answer.
_BRACKETED = re.compile(
    r"[(\[]\s*(?:independent|not(?:e|ing)\b|we\s+(?:can|could|may|note|are)\b|ignoring|since|because|as\b|where|these\b)",
    re.IGNORECASE,
)
# A remark with one of these words may say that the formula before it is not the answer, or name another one.
_WITHDRAWN = re.compile(
    r"\b(?:wrong|incorrect|instead|mistake|mistaken|actually|rather|not\s+the\s+answer|fail\w*|extraneous|invalid"
    r"|contradict\w*|impossible|false|so|yet|but|however|although|though|therefore|thus|hence|values?|answers?|solutions?"
    r"|should|may|might|seems?|guess\w*|reject\w*|exclud\w*|rul(?:e|ed|es|ing)\s+out|refut\w*|another|other|part|except)\b",
    re.IGNORECASE,
)
_DOES_NOT = re.compile(r"\b(?:not|no|cannot|never)\b|n't\b", re.IGNORECASE)
# A sentence with one of these words before its formula may deny it, or only try it: no remark behind it is left out.
_DOUBTED = re.compile(
    r"\b(?:not|no|never|neither|nor|cannot|impossible|false|reject\w*|rul(?:e|ed|es|ing)\s+out|exclud\w+|except"
    r"|discard\w*|eliminat\w+|disagree\w*|doubt\w*|errors?|mistak\w+|wrong\w*|incorrect\w*|fail\w*|contradict\w*"
    r"|extraneous|invalid|expect\w*|might|seems?|perhaps|maybe|possibly|trying|tried|try|guess\w*|naive\w*|unless|whether|suppose|assume|than"
    r"|(?:anything|everything|all|none|nothing)\s+but)\b|n't\b",
    re.IGNORECASE,
)
_AS_DESIRED = re.compile(
    r",?\s+as\s+(?:desired|required|claimed|expected|wanted|needed|stated|promised|we\s+wanted|was\s+to\s+be\s+\w+)"
    r"(?:\s+to\s+(?:show|prove))?$"
)
_FOR_ALL = re.compile(r"\s+for\s+(?:all|every|each|any)\s+[a-zA-Z -]{0,40}\$[^$\n]{1,80}\$$")
_REASON = re.compile(r",?\s+(?:because|since)\s(?:(?![.!?]\s+[A-Z]|\n)[\s\S]){1,400}$")
_ADJECTIVE = r"(?:only|unique|final|desired|required|correct|sole)"
_EXTREME = r"(?:smallest|largest|least|greatest|minimal|maximal|minimum|maximum|best)"
_IS_ANSWER = re.compile(
    rf"\s+(?:is|are)(?:\s+(?:indeed|thus|therefore|then|hence|clearly|also))?\s+"
    rf"(?:(?:the|our|my)\s+)?(?:(?:{_ADJECTIVE}\s+)*(?:possible\s+)?(?:answer|solution)s?"
    rf"|(?:the\s+)?(?:{_ADJECTIVE}\s+|{_EXTREME}\s+)+(?:possible\s+|such\s+)?(?:function|value|choice|possibility|number|pair|triple)s?)"
    r"(\s+(?:of|to|for|that|which|satisfying|in|with)\s[^.\n]{1,160})?$"
)
_IF = re.compile(r"(?<!only\s)(?<!exactly\s)(?<!precisely\s)\bif\b", re.IGNORECASE)
_DENYING = re.compile(
    r"(?:\b(?:not|never|than|except(?:\s+for)?|unless|whether|cannot|reject(?:s|ed|ing)?|rul(?:e|ed|es|ing)\s+out"
    r"|exclud(?:e|es|ed|ing)|discard(?:s|ed|ing)?|(?:impossible|false)\s+that|(?:anything|everything|all)\s+but)|n't"
    r"|(?<!only\s)(?<!exactly\s)(?<!precisely\s)\bif|contradict(?:s|ing)|suppose|assum(?:e|ing)|let|consider"
    r"|try|check|(?:for\s+)?example,?|fails?\s+for|near|far\s+from|exceeds?|differs?\s+from|without|perhaps|maybe"
    r"|at\s+(?:least|most))(?:\s+that)?"
    r"(?:\s+be)?(?:\s+equal(?:\s+to)?)?\s*$",
    re.IGNORECASE,
)
# These words deny all others: `no number works except $42$`.
_DENIES_OTHERS = re.compile(
    r"\b(?:no|none|nothing|impossible|never)\b[^.$\n]{0,60}\b(?:except(?:\s+for)?|than|but|unless)\s*$", re.IGNORECASE
)
_RANGE = re.compile(r"\b(?:from|between)\s*$", re.IGNORECASE)
_OPERATION = re.compile(r"[+*/]|\\(?:cdot|times|div)(?![a-zA-Z])|\d\s*-")
_NAME = re.compile(r"\s*([a-zA-Z](?:_\{?\w+\}?)?|\\[a-z]+)\s*(?:=|\\approx(?![a-zA-Z]))")
_WORDS = re.compile(r"\s+([a-zA-Z][a-zA-Z]*(?:\s[a-zA-Z]+){0,3})$")

_ROWS = re.compile(
    r"\\begin\s*\{(aligned|alignedat|align\*?|gathered|gather\*?|split|eqnarray\*?)\}(.*)\\end\s*\{\1\}", re.DOTALL
)
_ARROW = re.compile(
    r"\\(?:Rightarrow|Longrightarrow|implies|Leftrightarrow|Longleftrightarrow|iff|therefore)(?![a-zA-Z])"
)
_ROW_REMARK = re.compile(r"\\tag\s*\{[^{}]*\}|\\q?quad\s*(?:\\text\s*\{|\().*$|\\text\s*\{\s*[.,]?\s*\}\s*$", re.DOTALL)
_CONDITION = re.compile(r"\b(?:with|when|for|if|using|since|because|as|in\s+case|taking)\s*$", re.IGNORECASE)
_EQUALITY = re.compile(r"(?<![<>!])=")
_JOINT = re.compile(r"(?:\s*[,;]\s*|\s*,?\s+(?:and|or)\s+)$|\s*(?:\\text\s*\{)?\s*,?\s*(?:and|or)\s*\}?\s*$")
_COMMA = re.compile(r"\s*[,;]\s*$")
_OPEN_MATH = ("$$", "$", "\\(", "\\[")
_POINT = re.compile(
    r"^\s*(?:\\left)?\(\s*[a-zA-Z](?:_\{?\w+\}?)?(?:\s*,\s*[a-zA-Z](?:_\{?\w+\}?)?)+\s*(?:\\right)?\)\s*=\s*(?=(?:\\left)?\()"
)


def without_remarks(text: str) -> str:
    """A response without what follows its last statement and says nothing of it, its final full stop included."""
    text = text.rstrip(" \t\r\n.!")
    for _ in range(_MOST_REMARKS):
        shorter = _without_remark(text).rstrip(" \t\r\n.!")
        if shorter == text:
            break
        text = shorter
    return text


def doubts(text: str) -> bool:
    """Whether a text has words with which a sentence denies its formula, or only tries it."""
    return _DOUBTED.search(text) is not None


def closing_answer(text: str) -> str | None:
    """The conclusion of the formula at the end, with the unit behind it; several values of one name are a list. None
    if it ends without one, or denies it.

    text: without remarks.
    """
    ending = formula_at_end(text)
    if ending is not None:
        is_denied = _DENYING.search(ending[1][-40:]) and not _DENIES_OTHERS.search(ending[1][-120:])
        formulas, before = _formulas(text)
        if is_denied or (len(formulas) > 1 and _DENYING.search(before[-40:])):
            return None
        return _values(formulas, before) or _conclusion(*ending)
    words = _WORDS.search(text[-80:])
    if words is None or (ending := formula_at_end(text[: -len(words[0])])) is None:
        return None
    amount, unit = split_unit(f"5\\text{{ {words[1]} }}")
    is_unit = amount == "5" or (not unit and "text" not in amount)
    return f"{_conclusion(*ending)}\\text{{ {words[1]} }}" if is_unit else None


def closing_list(text: str) -> str | None:
    """The formulas at the end with only commas, `and` or `or` between them, as a list; None for fewer than two.

    text: without remarks.
    """
    formulas, before = _formulas(text)
    return ", ".join(formulas) if len(formulas) > 1 and not denies_list(before) else None


def denies_list(before: str) -> bool:
    """Whether the sentence before a list denies its items, or gives a range by them."""
    start = max((match.end() for match in _SENTENCE.finditer(before[-_TAIL:])), default=0)
    return doubts(before[-_TAIL:][start:]) or _RANGE.search(before[-20:]) is not None


def _values(formulas: Sequence[str], before: str) -> str | None:
    """The formulas as a list if they are values of one name, or numbers without one: none is then the answer alone."""
    if denies_list(before):
        return None
    names = {match[1] if (match := _NAME.match(formula)) else "" for formula in formulas}
    is_list = len(formulas) > 1 and len(names) == 1 and (names != {""} or all(map(_is_number, formulas)))
    values = {number(formula.replace("\\dfrac", "\\frac")) for formula in formulas}
    is_list = is_list and (None in values or len(values) > 1)  # $\frac{4}{10}$ or $\frac{2}{5}$ is one value
    if names == {""} and len(values) > 1 and any(map(_OPERATION.search, formulas[:-1])):  # $40+2$, or $42$
        return None
    return ", ".join(formulas) if is_list else None


def _is_number(formula: str) -> bool:
    return any(letter.isdigit() for letter in formula) and not re.search(r"(?<![\\a-zA-Z])[a-zA-Z]|[=<>(]", formula)


def _formulas(text: str) -> tuple[list[str], str]:
    """The formulas at the end with only commas, `and` or `or` between them, in order, and the text before them."""
    formulas: list[str] = []
    is_comma, first = False, text
    while len(formulas) < MAX_FORMULAS and (ending := formula_at_end(text)) is not None:
        formula, before = ending
        if formulas and is_comma and _CONDITION.search(before[-20:]):
            break  # In the case $n=3$, $x=1$
        formulas.append(_POINT.sub("", _conclusion(formula, before)))
        first = before
        joint = _JOINT.search(before[-40:])
        if joint is None:
            break
        text, is_comma = before[: -len(joint[0])] if joint[0] else before, _COMMA.fullmatch(joint[0]) is not None
    return formulas[::-1], first


def _without_remark(text: str) -> str:
    """Without the last remark, or the same text."""
    if match := _PICTURE.search(text[-600:]):
        return text[: -len(match[0])]
    tail = text[-_TAIL:]
    starts = [match.end() for match in _SENTENCE.finditer(tail)]
    if text.endswith((")", "]")) and not text.endswith(_ENDS) and (length := _bracketed(tail)):
        return text if _is_doubted(tail, starts, len(tail) - length) else text[:-length]
    if starts and _CHECK.match(tail, starts[-1]) and not _WITHDRAWN.search(tail, starts[-1]):
        return text[: len(text) - len(tail) + starts[-1]]
    for pattern in (_AS_DESIRED, _FOR_ALL, _REASON, _IS_ANSWER):
        match = _first_after_formula(pattern, tail)
        if match is None or _WITHDRAWN.search(match[1] or "" if pattern is _IS_ANSWER else match[0]):
            continue
        if _is_doubted(tail, starts, match.start(), also_if=pattern is _IS_ANSWER):
            continue
        if pattern is _IS_ANSWER and _DOES_NOT.search(match[0]):
            continue
        return text[: -len(match[0])]
    return text


def _is_doubted(tail: str, starts: list[int], end: int, *, also_if: bool = False) -> bool:
    """Whether the sentence before a place denies its formula, or only tries it. also_if: or is a condition."""
    before = tail[max((start for start in starts if start < end), default=0) : end]
    return doubts(before) or bool(also_if and _IF.search(before))


def _first_after_formula(pattern: re.Pattern[str], tail: str) -> re.Match[str] | None:
    """The first match that stands right behind a formula and reaches the end."""
    for end in _ENDS:
        place = tail.find(end)
        while place >= 0:
            after = place + len(end)
            if match := pattern.match(tail, after):
                return match
            place = tail.find(end, after)
    return None


def _bracketed(tail: str) -> int:
    """The length of the remark in brackets at the end, 0 if there is none."""
    depth = 0
    for place in range(len(tail) - 1, -1, -1):
        depth += (tail[place] in ")]") - (tail[place] in "([")
        if depth == 0:
            is_remark = _BRACKETED.match(tail, place) and not _WITHDRAWN.search(tail, place)
            return len(tail) - place if is_remark else 0
    return 0


def _conclusion(formula: str, before: str) -> str:
    r"""What a formula ends with: the last row of several, what follows its last \Rightarrow, without a condition."""
    if match := _ROWS.search(formula):
        rows = [row for row in re.split(r"\\\\(?:\s*\[[^\[\]]*\])?", match[2]) if row.strip(" \t\r\n&")]
        formula = rows[-1].replace("&", " ") if rows else formula
    formula = _ROW_REMARK.sub("", formula)
    formula = _ARROW.split(formula)[-1].strip(" \t\r\n.~")
    if _CONDITION.search(before[-20:]):
        comma = _first_comma(formula)
        if comma and _EQUALITY.search(formula[:comma]) and _EQUALITY.search(formula[comma:]):
            return formula[comma + 1 :].strip()
    return formula


def _first_comma(formula: str) -> int:
    """The place of the first comma that is in no bracket, 0 if there is none."""
    depth = 0
    for place, letter in enumerate(formula):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0 and formula[max(0, place - 1)] != "\\":
            return place
    return 0
