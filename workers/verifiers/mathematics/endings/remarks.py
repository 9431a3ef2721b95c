r"""What follows the last statement of a response and says nothing of it: `as required`, `(as above)`, `QED`, `---`.

Only closed forms of remarks are left out, and none that may take the answer back. Standard library only; every pattern
looks at a bounded part of the response's end.
"""

from __future__ import annotations

import re

from workers.verifiers.mathematics.endings.wording import doubts, is_negated, may_withdraw

TAIL = 1000  # characters of a remark
_MOST_REMARKS = 8
_ENDS = ("$", "\\)", "\\]")
_STRIPPED = " \t\r\n.!*"  # a full stop, and emphasis

_SENTENCE = re.compile(r"(?:[.!?][\s)\]*]+|\n\s*|(?:\$\$|\\\])\s*)(?=[A-Z\[(])")
_PICTURE = re.compile(r"(?:<img[^<>\n]{0,200}>|!\[[^\]\n]{0,200}\]\([^()\n]{0,300}\))$")
_SQUARE = r"\\(?:black)?square|\\Box|\\qed(?:symbol|here)?|\\QED|\\checkmark|\\text\s*\{\s*Q\.?E\.?D\.?\s*\}"
_END_OF_PROOF = re.compile(
    rf"(?:(?<!\$)\$\s*(?:{_SQUARE})\s*\$|\\[(\[]\s*(?:{_SQUARE})\s*\\[)\]]|(?:{_SQUARE})"
    r"|[∎■□◻◼▪✓✔✅☑\ufe0f\u2600-\u26ff\U0001f300-\U0001faff]|\(?\bQ\.?E\.?D\b\.?\)?|\n[ \t]*[-_]{3,})$"
)
_VALUE_WORDS = r"(?:value|values|solution|solutions|function|functions)"
_CHECK = re.compile(
    r"(?:(?:(?:And|Indeed|Finally),?\s+)?[Ww]e\s+(?:can|could|may)\s+(?:(?:easily|also|now|then)\s+)?(?:check|verify|confirm)"
    rf"\s+that\s+(?:this|it|these|they|both|all|each)(?:\s+{_VALUE_WORDS})?"
    r"(?:\s+(?:indeed|does|do|also))?\s+(?:works?|holds?|(?:is|are)\s+(?:indeed\s+)?(?:valid|correct|attainable|achievable)"
    r"|satisf(?:y|ies)\s+(?:the|all|both)\s[a-z ]{1,40})"
    r"|This\s+(?:completes|concludes|finishes)\s+(?:the|our)\s+(?:proof|argument|solution|problem))$"
)
_OFFER = re.compile(
    r"(?:(?:I\s+)?[Hh]ope\s+(?:this|that|it)\s+(?:helps|is\s+(?:correct|clear|helpful)|clarifies|makes\s+sense)"
    r"[a-z ]{0,40}|(?:Please\s+)?[Ll]et\s+me\s+know\s[a-zA-Z ',]{1,120}"
    r"|(?:Please\s+)?[Ff]eel\s+free\s+to\s[a-zA-Z ',]{1,120}"
    r"|If\s+you\s+have\s+any\s[a-zA-Z ',]{1,120}|(?:All\s+)?[Dd]one"
    r"|(?:This|That)\s+is\s+(?:the|our|my)\s+(?:(?:final|desired|required|correct)\s+)?answer"
    r"|That(?:'s|\s+is)\s+(?:it|all)"
    r"|Thank(?:s|\s+you)[a-z ]{0,40})$"
)
# A remark in brackets begins with one of these words: others, such as `or`, may name another answer.
_BRACKETED = re.compile(
    r"[(\[]\s*(?:independent|not(?:e|ing)\b|we\s+(?:can|could|may|note|are)\b|ignoring|since|because|as\b|where|these\b)",
    re.IGNORECASE,
)
_NUMBER_OR_WORDS = (
    r"(?:\$[^$\n]{1,80}\$|the\s+(?:negative|other|extraneous|trivial|smaller|larger)\s+(?:root|solution|one))"
)
_ANOTHER_REJECTED = re.compile(
    rf"(?:,?\s+|\s*\(\s*)(?:rejecting|discarding|excluding|ignoring"
    r"|the\s+other\s+(?:root|solution)\s+is\s+(?:negative|extraneous))"
    rf"(?:\s+(?P<value>{_NUMBER_OR_WORDS}))?\s*\)?$",
    re.IGNORECASE,
)
_ABOUT = re.compile(r"(?:,?\s+or|\s*\()\s*(?:about|approximately|roughly|\$\\approx)\s*\$?[^$\n()]{1,40}\$?\)?$")
_AS_DESIRED = re.compile(
    r",?\s+as\s+(?:desired|required|claimed|expected|wanted|needed|stated|promised|we\s+wanted|was\s+to\s+be\s+\w+)"
    r"(?:\s+to\s+(?:show|prove))?$"
)
_FOR_ALL = re.compile(
    r"\s+for\s+(?:all|every|each|any|some)\s+[a-zA-Z -]{0,40}\$[^$\n]{1,80}\$$"
    r"|,?\s+where\s+\$[^$\n]{1,40}\$\s+is\s+(?:an?|any|some)\s[a-z ]{1,40}$"
)
_ATTAINED = re.compile(
    r",?\s+(?:which\s+is\s+|and\s+(?:it\s+)?is\s+|is\s+)?(?:attained|achieved|reached|with\s+equality)"
    r"(?P<place>\s+(?:only\s+|exactly\s+)?(?:at|when|if|by|for)\s(?:(?![.!?]\s+[A-Z]|\n)[\s\S]){1,200})?$"
)
_COMPLETES = re.compile(
    r"[.,]?\s+(?:which|and\s+this)\s+(?:completes|concludes|finishes)\s+(?:the|our)\s+(?:proof|argument|solution|problem)$"
)
_REASON = re.compile(r",?\s+(?:because|since)\s(?:(?![.!?]\s+[A-Z]|\n)[\s\S]){1,400}$")
_ADJECTIVE = r"(?:only|unique|final|desired|required|correct|sole)"
_EXTREME = r"(?:smallest|largest|least|greatest|minimal|maximal|minimum|maximum|best)"
_IS_ANSWER = re.compile(
    rf"\**\s+(?:is|are)(?:\s+(?:indeed|thus|therefore|then|hence|clearly|also))?\s+"
    rf"(?:(?:the|our|my)\s+)?(?:(?:{_ADJECTIVE}\s+)*(?:possible\s+)?(?:answer|solution)s?"
    rf"|(?:the\s+)?(?:{_ADJECTIVE}\s+|{_EXTREME}\s+)+(?:possible\s+|such\s+)?(?:function|value|choice|possibility|number|pair|triple)s?)"
    r"(\s+(?:of|to|for|that|which|satisfying|in|with)\s[^.\n]{1,160})?$"
)
_BEHIND_FORMULA = (_AS_DESIRED, _FOR_ALL, _COMPLETES, _ATTAINED, _ABOUT, _ANOTHER_REJECTED, _REASON, _IS_ANSWER)
_CLAUSE = re.compile(r"\b(?:is|are|and|but|while)\b", re.IGNORECASE)
_IF = re.compile(r"(?<!only\s)(?<!exactly\s)(?<!precisely\s)\bif\b", re.IGNORECASE)


def without_remarks(text: str) -> str:
    """A response without what follows its last statement and says nothing of it, its final full stop included."""
    text = text.rstrip(_STRIPPED)
    for _ in range(_MOST_REMARKS):
        shorter = _without_remark(text).rstrip(_STRIPPED)
        if shorter == text:
            break
        text = shorter
    return text


def sentence_before(text: str) -> str:
    """The beginning of the sentence that a text breaks off in."""
    tail = text[-TAIL:]
    return tail[max((match.end() for match in _SENTENCE.finditer(tail)), default=0) :]


def _without_remark(text: str) -> str:
    """Without the last remark, or the same text."""
    if match := _PICTURE.search(text[-600:]) or _END_OF_PROOF.search(text[-60:]):
        return text[: -len(match[0])]
    tail = text[-TAIL:]
    starts = [match.end() for match in _SENTENCE.finditer(tail)]
    if text.endswith((")", "]")) and not text.endswith(_ENDS) and (length := _bracketed(tail)):
        return text if _is_doubted(tail, starts, len(tail) - length) else text[:-length]
    if starts and _OFFER.match(tail, starts[-1]):
        return text[: len(text) - len(tail) + starts[-1]]
    if starts and _CHECK.match(tail, starts[-1]) and not may_withdraw(tail, starts[-1]):
        return text[: len(text) - len(tail) + starts[-1]]
    for pattern in _BEHIND_FORMULA if any(end in tail for end in _ENDS) else ():
        match = _first_after_formula(pattern, tail)
        if (
            match is not None
            and _says_nothing(pattern, match)
            and not _is_doubted(tail, starts, match.start(), also_if=pattern is _IS_ANSWER)
        ):
            return text[: -len(match[0])]
    return text


def _says_nothing(pattern: re.Pattern[str], match: re.Match[str]) -> bool:
    """Whether what stands behind a formula takes nothing of it back."""
    if pattern is _COMPLETES:
        return True
    if pattern is _ANOTHER_REJECTED:
        return not (match["value"] and match.string.endswith(match["value"], 0, match.start()))
    if pattern is _ATTAINED and (is_negated(match[0]) or _CLAUSE.search(match["place"] or "")):
        return False
    if pattern is _IS_ANSWER:
        return not may_withdraw(match[1] or "") and not is_negated(match[0])
    return not may_withdraw(match[0])


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
            is_remark = _BRACKETED.match(tail, place) and not may_withdraw(tail, place)
            return len(tail) - place if is_remark else 0
    return 0
