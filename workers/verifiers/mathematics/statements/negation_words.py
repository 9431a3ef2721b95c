"""The words that deny or suppose an answer, and the patterns that are made of them. Standard library only."""

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

_NEGATION = re.compile(rf"\b(?:{_NOT})\b|n't\b", re.IGNORECASE)
_DENIAL = re.compile(rf"\b(?:{_NOT}|{_DENIED}|than|without|(?:anything|everything|all)\s+but)\b|n't\b", re.IGNORECASE)
_SUPPOSITION = re.compile(rf"\b(?:{_GUESSED}|{_SUPPOSED}|mistak\w+|errors?)\b", re.IGNORECASE)
# What is denied before one of these words is another thing: `We have not $41$, hence $42$`.
_CONSEQUENCE = re.compile(r"(?:^|[\s,;])(?:so|hence|thus|therefore|whence|consequently)\b", re.IGNORECASE)
# Before `the answer is 42`: the sentence does not say so.
_UNSTATED = re.compile(
    r"(?:\b(?:if|whether|unless|assum(?:e|ing)|suppos(?:e|ing)|imagine|pretend|(?:wrong|false|incorrect|untrue|impossible|unlikely)\s+that"
    r"|doubt\w*|den(?:y|ies|ied)|(?:may|might|could|would)\s+(?:think|believe|say|guess|expect|claim)"
    r"|(?:nobody|no\s+one|not|never|cannot)\s+(?:think|believe|say|know|claim|mean|sure|certain|clear|true))"
    r"|n't\s+(?:think|believe|say|know|claim|mean|sure|certain|clear|true))(?:\s+(?:that|whether|if))?\s*$",
    re.IGNORECASE,
)


def is_negated(text: str) -> bool:
    """Whether a text says `not` in some way."""
    return _NEGATION.search(text) is not None


def doubts(sentence: str) -> bool:
    """Whether a sentence denies what it ends with, or only tries it.

    A denial holds up to `so`, `hence` or `therefore`; what is tried is tried to the end of the sentence.
    """
    if _SUPPOSITION.search(sentence):
        return True
    start = max((match.end() for match in _CONSEQUENCE.finditer(sentence)), default=0)
    return _DENIAL.search(sentence, start) is not None


def is_unstated(before: str) -> bool:
    """Whether the words before `the answer is` doubt or suppose what it says."""
    return _UNSTATED.search(before[-60:]) is not None
