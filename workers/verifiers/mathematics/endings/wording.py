"""The words that deny, suppose or revise an answer, each in one list, and the patterns that are made of them.

All other modules of this folder ask these patterns. Standard library only.
"""

from __future__ import annotations

import re

_NOT = r"not|no|never|neither|nor|cannot|none|nothing"
# It is not so.
_DENIED = (
    r"wrong\w*|incorrect\w*|false|impossible|invalid|extraneous|absurd|mistak\w+|errors?|fail\w*|contradict\w*|refut\w*"
    r"|reject\w*|exclud\w*|except|rul(?:e|ed|es|ing)\s+out|discard\w*|eliminat\w+|disagree\w*|doubt\w*"
)
# It may be so.
_GUESSED = r"guess\w*|might|may|seems?|perhaps|maybe|possibly"
# It is tried, or asked.
_SUPPOSED = r"suppose|assume|try|trying|tried|expect\w*|naive\w*|whether|unless"
# Another answer may follow.
_REVISED = (
    r"instead|actually|rather|not\s+the\s+answer|should|yet|but|however|although|though|another|other|part"
    r"|so|therefore|thus|hence|values?|answers?|solutions?"
)

_NEGATION = re.compile(rf"\b(?:{_NOT})\b|n't\b", re.IGNORECASE)
_DENIAL = re.compile(rf"\b(?:{_NOT}|{_DENIED}|than|without|(?:anything|everything|all)\s+but)\b|n't\b", re.IGNORECASE)
_SUPPOSITION = re.compile(rf"\b(?:{_GUESSED}|{_SUPPOSED}|mistak\w+|errors?)\b", re.IGNORECASE)
_WITHDRAWAL = re.compile(rf"\b(?:{_DENIED}|{_GUESSED}|{_REVISED})\b", re.IGNORECASE)
# What is denied before one of these words is another thing: `We have not $41$, hence $42$`.
_CONSEQUENCE = re.compile(r"(?:^|[\s,;])(?:so|hence|thus|therefore|whence|consequently)\b", re.IGNORECASE)

_EQUAL = r"(?:\s+that)?(?:\s+be)?(?:\s+equal(?:\s+to)?)?"
# Right before a formula.
_DENYING = re.compile(
    rf"(?:\b(?:not|never|than|except(?:\s+for)?|unless|whether|cannot|reject(?:s|ed|ing)?|rul(?:e|ed|es|ing)\s+out"
    r"|exclud(?:e|es|ed|ing)|discard(?:s|ed|ing)?|(?:impossible|false)\s+that|(?:anything|everything|all)\s+but)|n't"
    r"|(?<!only\s)(?<!exactly\s)(?<!precisely\s)\bif|contradict(?:s|ing)|suppose|assum(?:e|ing)|let|consider"
    r"|try|check|(?:for\s+)?example,?|fails?\s+for|near|far\s+from|exceeds?|differs?\s+from|without|perhaps|maybe"
    r"|at\s+(?:least|most)|divides|divisible\s+by|(?:multiples?|divisors?|factors?|square|cube|root|half|third)\s+of"
    r"|twice|double|triple|congruent\s+to|(?:co|relatively\s+)prime\s+to|(?:could|might|may)(?:\s+\w+)?\s+be|(?:attained|achieved|reached|obtained|occurs?|occurring)\s+(?:only\s+)?(?:at|for|by|when|if)"
    rf"|equality\s+(?:holds\s+)?(?:at|for|when|if)){_EQUAL}\s*$",
    re.IGNORECASE,
)
# These words deny all others: `no number works except $42$`.
_DENIES_OTHERS = re.compile(
    r"\b(?:no|none|nothing|impossible|never)\b[^.$\n]{0,60}\b(?:except(?:\s+for)?|than|but|unless)\s*$", re.IGNORECASE
)
# `Assume for contradiction that $n=42$`: only tried, unless a conclusion follows in the same sentence.
_TRIED = re.compile(
    r"\s*(?:(?:now|first|next|then)\s+)?(?:let\s+us\s+)?(?:suppose|assume|let|consider|try|imagine|if)\b(?P<rest>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_CONCLUDES = re.compile(
    r"[,;:]|\b(?:then|so|we|gives?|yields?|(?<!it\s)(?<!this\s)(?<!that\s)is|are|hence|thus|therefore|implies)\b",
    re.IGNORECASE,
)
# `The maximum is $42$ when $x=3$`: the last formula is where, not what.
_WHERE = re.compile(r"\b(?:is|equals|of)\s+\**\$[^$\n]{1,80}\$\**,?\s+(?:when|at|where|if)\s*$", re.IGNORECASE)
_UNKNOWN = re.compile(
    r"(?:\b(?:do(?:es)?\s+not|cannot|can\s+not)|n't)\s+(?:know|tell|say|decide|determine)\b|\bnot\s+sure\b|\bno\s+idea\b",
    re.IGNORECASE,
)
# Before `the answer is 42`: the sentence does not say so.
_UNSTATED = re.compile(
    r"(?:\b(?:if|whether|unless|assum(?:e|ing)|suppos(?:e|ing)|imagine|pretend|(?:wrong|false|incorrect|untrue|impossible|unlikely)\s+that"
    r"|doubt\w*|den(?:y|ies|ied)|(?:may|might|could|would)\s+(?:think|believe|say|guess|expect|claim)"
    r"|(?:nobody|no\s+one|not|never|cannot)\s+(?:think|believe|say|know|claim|mean|sure|certain|clear|true))"
    r"|n't\s+(?:think|believe|say|know|claim|mean|sure|certain|clear|true))(?:\s+(?:that|whether|if))?\s*$",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\b(?:from|between)\s*$", re.IGNORECASE)
_SECOND_OF_RANGE = re.compile(r"\b(?:from|between)\s+\$[^$\n]{1,60}\$\s+(?:to|and)\s*$", re.IGNORECASE)


def is_negated(text: str) -> bool:
    """Whether a text says `not` in some way."""
    return _NEGATION.search(text) is not None


def may_withdraw(remark: str, start: int = 0) -> bool:
    """Whether a remark may say that the answer before it is none, or name another one."""
    return _WITHDRAWAL.search(remark, start) is not None


def doubts(sentence: str) -> bool:
    """Whether a sentence denies what it ends with, or only tries it.

    A denial holds up to `so`, `hence` or `therefore`; what is tried is tried to the end of the sentence.
    """
    if _SUPPOSITION.search(sentence):
        return True
    start = max((match.end() for match in _CONSEQUENCE.finditer(sentence)), default=0)
    return _DENIAL.search(sentence, start) is not None


def is_denied(before: str) -> bool:
    """Whether the words right before a formula say that it is not the answer.

    before: at least 200 characters, where there are as many; without emphasis at its end.
    """
    if _SECOND_OF_RANGE.search(before[-140:]) or _WHERE.search(before[-140:]) or _UNKNOWN.search(before[-200:]):
        return True
    return _DENYING.search(before[-60:]) is not None and not _DENIES_OTHERS.search(before[-120:])


def is_unstated(before: str) -> bool:
    """Whether the words before `the answer is` doubt or suppose what it says."""
    return _UNSTATED.search(before[-60:]) is not None


def is_tried(sentence: str) -> bool:
    """Whether the sentence before a formula only supposes it."""
    match = _TRIED.match(sentence)
    return match is not None and not _CONCLUDES.search(match["rest"])


def opens_range(before: str) -> bool:
    """Whether the formulas behind a text are the ends of a range."""
    return _RANGE.search(before[-20:]) is not None
