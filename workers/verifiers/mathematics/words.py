r"""Words are compared as text: the content of `\text{...}`, and two letters or more without an operator.

Algebra would multiply their letters, so that `\text{east}` equalled `\text{seat}`. Standard library only; every step is
linear in the text.
"""

from __future__ import annotations

import re

from workers.verifiers.mathematics.statements.negation_words import is_unstated

_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_TEXT_WITH_WORD = re.compile(r"\\text\s*\{[^{}]*[a-zA-Z]{2}[^{}]*\}")

# Before an answer: "The answer is", "Answer:", "=", "\approx", "Area =".
_INTRODUCTION = re.compile(
    r"^(?:(?:\\text\s*\{)?\s*(?:thus|so|hence|therefore)?,?\s*(?:the\s+)?(?:(?:final|correct)\s+)?(?:answer|result|solution)"
    r"\s*(?:is|:|=|is\s*:)\s*(?P<open>\}?)|(?:=|\\approx(?![a-zA-Z])|\\Rightarrow|\\implies|\\to(?![a-zA-Z])|:)\s*)",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"\s*\\text\s*\{\s*(?:is|are)\s+(?:the|my|our)\s+(?:(?:final|correct)\s+)?(?:answer|solution)s?\.?\s*\}$"
)
_NAME_OF_VALUE = re.compile(r"^(?:\\text\s*\{[^{}=]*\}|[A-Za-z][A-Za-z ]{2,30})\s*=\s*(?=[^=<>]*\d[^=<>]*$)")
# `at most x = 5` names no value.
_BOUND = re.compile(r"\b(?:at|below|above|under|over|near|between|up|within|beyond|exceeds?)\b", re.IGNORECASE)

# Between values; `\text{ to }` between numbers is a ratio.
_OR = re.compile(
    r"\s*,?\s*(?:\\text\s*\{\s*,?\s*or\s*\}|\\lor(?![a-zA-Z])|\\vee(?![a-zA-Z])|(?<![a-zA-Z\\])or(?![a-zA-Z]))\s*"
)
_AND = re.compile(
    r"\s*,?\s*(?:\\text\s*\{\s*,?\s*and\s*\}|\\land(?![a-zA-Z])|\\wedge(?![a-zA-Z])|(?<![a-zA-Z\\])and(?![a-zA-Z]))\s*"
)
_TO = re.compile(r"(?<=\d)\s*(?:\\text\s*\{\s*to\s*\}|\bto\b)\s*(?=\d)")
_OPTION = re.compile(r"^(?:\\text\s*\{)?\s*(?:option|choice|answer)\s*\(?\s*([A-J])\s*\)?\s*\}?$", re.IGNORECASE)
_MONTH = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAY_FIRST = re.compile(rf"\b(\d{{1,2}}) (?:(?:st|nd|rd|th) )?(?:of )?({_MONTH})\b")
_ORDINAL_DAY = re.compile(rf"\b((?:{_MONTH}) \d{{1,2}}) (?:st|nd|rd|th)\b")

# Whole answers in words that are a formula.
_FORMULAS = {"infinity": "\\infty", "positive infinity": "\\infty", "negative infinity": "-\\infty"}
_FORMULAS |= {"minus infinity": "-\\infty", "empty set": "\\emptyset", "null set": "\\emptyset"}
_FORMULAS |= dict.fromkeys(("all real numbers", "all reals", "real numbers", "set of all real numbers"), "\\mathbb{R}")
_EMPTY_SET = re.compile(r"\\(?:varnothing|empty)(?![a-zA-Z])|^\\\{\s*\\\}$")

_SYNONYMS = {"does not exist": "dne", "doesn't exist": "dne", "doesnt exist": "dne", "undefined": "undefined"}
_SYNONYMS |= dict.fromkeys(("no solutions", "no solution exists", "no solutions exist", "none exist"), "no solution")
_SYNONYMS |= {"infinitely many solutions": "infinitely many", "infinite solutions": "infinitely many"}
_SYNONYMS |= {"not a number": "nan", "can not be determined": "cannot be determined"}
_FILLERS = re.compile(
    r"^(?:(?:there\s+(?:is|are|exists?)|it\s+is|it|limit|the|an|a(?!\s+(?:and|or)\b)(?=\s+[a-z]{2}))\s+)+(?=[a-z])",
    re.IGNORECASE,
)

_FUNCTIONS_TEXT = """
sin cos tan cot sec csc log ln exp sqrt arcsin arccos arctan sinh cosh tanh max min gcd lcm mod det deg dim arg Re
Im and or np pi inf
"""
_FUNCTIONS = frozenset(_FUNCTIONS_TEXT.split())
_SHORT_WORDS_TEXT = """
no on yes ten net two one six odd all any not new old red top cat dog man day low up in out
"""
_SHORT_WORDS = frozenset(_SHORT_WORDS_TEXT.split())
_COMMAND = re.compile(r"\\(?:begin|end|operatorname\*?|math(?:bb|cal|frak|scr))\s*\{[^{}]*\}|\\[a-zA-Z]+")
_RUN = re.compile(r"[a-zA-Z]+")
_LETTERS = re.compile(r"[A-Za-z][A-Za-z ]*[A-Za-z]")
_GEOMETRY = re.compile(
    r"\\(angle|measuredangle|triangle|overline|overleftrightarrow|overrightarrow|vec|widehat|bar)\s*\{?\s*([A-Z](?:\s*[A-Z])+)\s*\}?"
)
_REVERSIBLE = ("angle", "measuredangle", "overline", "overleftrightarrow", "bar")
_LONG_RUN = 4  # letters; shorter ones may be a product, as in 2ab
_DENIALS = ("no", "not", "non", "nor", "at", "most", "than")  # never a product: `not 0`, `at most x=5`


def without_phrases(text: str) -> str:
    """The answer without words that only say that it is the answer."""
    if match := _INTRODUCTION.match(text):
        rest = text[match.end() :]
        if match["open"] == "" and text.startswith("\\text"):
            rest = "\\text{" + rest  # \text{Answer: 42}
        text = rest.strip()
    text = _OPTION.sub(r"\1", _CLOSING.sub("", text))
    name = _NAME_OF_VALUE.match(text)
    return (
        text[name.end() :] if name and not (_BOUND.search(name[0]) or is_unstated(name[0].rstrip("= ") + " ")) else text
    )


def plain_connectives(text: str) -> str:
    """`and`, `or`, and `to` between numbers, in one way of writing; a whole answer in words as the formula it names."""
    text = _EMPTY_SET.sub(r"\\emptyset", text)
    if "or" in text or "vee" in text:
        text = _OR.sub(" or ", text)
    if "and" in text or "wedge" in text:
        text = _AND.sub(" and ", text)
    text = _TO.sub(":", text)
    return _FORMULAS.get(spoken(text), text) if _RUN.match(text) or text.startswith("\\text") else text


def spoken(text: str) -> str:
    r"""The words of an answer in one way of writing: without `\text`, case, punctuation, articles."""
    flat = _TEXT.sub(r" \1 ", text).replace("-", " - ") if "\\" in text else text
    words = [
        word if len(word) == 1 else word.lower()
        for word in re.findall(r"\\?[A-Za-z']+|\d+(?:\.\d+)?|[^\s\w.'\"]|_", flat)
    ]
    line = " ".join(words)
    line = _ORDINAL_DAY.sub(r"\1", _DAY_FIRST.sub(r"\2 \1", _FILLERS.sub("", line)))
    return _SYNONYMS.get(line, line)


def same_words(answer: str, gold: str) -> bool | None:
    """Whether two cleaned answers are the same words; None if neither is words."""
    if (match := _GEOMETRY.fullmatch(answer)) and (other := _GEOMETRY.fullmatch(gold)):
        return _same_figure(match, other)
    if not (_is_text(answer) or _is_text(gold)):
        return None
    if "\\emptyset" in (answer, gold):
        return {spoken(answer), spoken(gold)} <= {"\\emptyset", "no solution", "none"}
    ours, theirs = _parts(answer), _parts(gold)
    return ours == theirs


def _parts(text: str) -> list[str]:
    """The words between `=`, commas, `and`, `or`, in an order of their own."""
    name = re.sub(r"^[a-zA-Z]\s*=\s*(?=\\text)", "", text)
    line = re.sub(r"^\(\s*([A-Z])\s*\)$", r"\1", spoken(name).strip())
    if _LETTERS.fullmatch(name) and all(len(word) == 1 for word in name.split()):
        line = name.replace(" ", "").lower() if len(name) > 1 else name  # B D A C is BDAC
    return sorted(part.strip() for part in re.split(r"\s*(?:,|=|;|\band\b|\bor\b)\s*", line) if part.strip())


def _is_text(text: str) -> bool:
    """Whether a cleaned answer is words, not a formula."""
    if _TEXT_WITH_WORD.search(text):
        return True
    if _LETTERS.fullmatch(text):
        return not _is_product(text)
    if "\\" in text:
        text = _COMMAND.sub(" ", text)
    return any(
        run in _DENIALS or (len(run) >= _LONG_RUN and run not in _FUNCTIONS and not _is_coefficients(run))
        for run in _RUN.findall(text)
    )


def _is_product(text: str) -> bool:
    """Whether letters without a sign between them are a product: ab, mM, x y; not AB, no, Amy, a row of points."""
    runs = text.split()
    letters = "".join(runs)
    if letters.isupper() or (letters.istitle() and len(runs) == 1):
        return False
    if len(runs) > 1:
        return all(len(run) == 1 for run in runs)
    return len(letters) < _LONG_RUN and letters.lower() not in _SHORT_WORDS


def _is_coefficients(run: str) -> bool:
    """Whether a long run within a formula looks like a product of letters in alphabetical order: abcd."""
    return run.islower() and list(run) == sorted(set(run))


def _same_figure(match: re.Match[str], other: re.Match[str]) -> bool:
    """Figures are named by their points in order; an angle and a segment also backwards."""
    name, points = match[1], match[2].replace(" ", "")
    others = other[2].replace(" ", "")
    return name == other[1] and (points == others or (name in _REVERSIBLE and points == others[::-1]))
