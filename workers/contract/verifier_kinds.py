"""The kinds of verifiers, the rule of each in one line, and its version.

A reward is meaningful only together with the rules that produced it, so evaluations record both: `math/3`. A change
of a kind's verdicts raises its version. All rules, with examples, are in docs/verifiers.md. No torch, no pydantic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

VerifierKind = Literal[
    "math",
    "exact",
    "choice",
    "numeric",
    "regex",
    "python",
    "python_partial",
    "countdown",
    "words",
    "rouge",
    "json",
    "instructions",
    "reasoning_gym",
    "function",
    "judge",
]
DEFAULT_TOLERANCE = 1e-4
ResponseExtraction = Literal["strict", "flexible"]
RESPONSE_EXTRACTIONS: dict[ResponseExtraction, str] = {
    "strict": "a box or a stated answer",
    "flexible": "a box or a stated answer, else the last number",
}
CODE_KINDS: tuple[VerifierKind, ...] = ("python", "python_partial")  # they run the code of responses
# The verifiers that read the answers of a question file's format (workers.questions.columns).
FORMAT_KINDS: dict[str, tuple[VerifierKind, ...]] = {
    "tests": CODE_KINDS,
    "options": ("choice",),
    "countdown": ("countdown",),
    "instructions": ("instructions",),
}
FILE_KINDS: tuple[VerifierKind, ...] = ("function", "judge")  # a file has their rules
JUDGED = "judge"  # the kind whose rewards are a model's opinion


@dataclass(frozen=True)
class Rules:
    """version: counts the changes of its verdicts.  line: what it compares.  votes: which text of a response is its
    answer in maj@k: the stated one, or the whole response where none is; empty if answers have no known form."""

    version: int
    line: str
    votes: Literal["", "stated", "whole"] = ""
    is_graded: bool = False  # its rewards may lie between 0 and 1
    is_flexible: bool = False  # it compares numbers


_MATH = "mathematically equal to the answer in the last box, or else to the one that the text states"
_PARTIAL = "partial credit: the share of the assertions in the reference answer's tests that hold"
_JSON = "partial credit: the share of a JSON object's fields that are as the reference answer says"
RULES: dict[VerifierKind, Rules] = {
    "math": Rules(11, _MATH, "stated", is_flexible=True),
    "exact": Rules(3, "the same text", "whole"),
    "choice": Rules(5, "multiple choice: the same letter, A to J", "whole"),
    "numeric": Rules(9, "the same number within a relative tolerance", "stated", is_flexible=True),
    "regex": Rules(4, "the reference answer is a regular expression for the whole answer", "whole"),
    "python": Rules(5, "the reference answer is Python tests for the code in the response"),
    "python_partial": Rules(4, _PARTIAL, is_graded=True),
    "countdown": Rules(2, "an expression that uses each given number once and reaches the target", "stated"),
    "words": Rules(1, "partial credit: F1 of the words of answer and reference answer", is_graded=True),
    "rouge": Rules(1, "partial credit: ROUGE-L of answer and reference answer", is_graded=True),
    "json": Rules(1, _JSON, is_graded=True),
    "instructions": Rules(1, "every instruction of IFEval's columns is followed"),
    "reasoning_gym": Rules(1, "the score of the question's generator in reasoning-gym", is_graded=True),
    "function": Rules(1, "a Python function of your own gives the reward, from 0 to 1", is_graded=True),
    "judge": Rules(3, "a language model or a reward model gives the reward, from 0 to 1: not verified", is_graded=True),
}
_TESTS_AGAIN = "the same tests run again in new processes with another hash seed"
# The same judgement once more, for the reward audit. The other kinds are rules, which always judge alike.
AUDIT_METHODS: dict[VerifierKind, str] = {
    "python": _TESTS_AGAIN,
    "python_partial": _TESTS_AGAIN,
    "function": "the same call again in a new process with another hash seed",
    "judge": "the judge is asked again, in the reverse order, whatever it answered before",
}
FLEXIBLE_KINDS = tuple(kind for kind, rules in RULES.items() if rules.is_flexible)
GRADED_KINDS = tuple(kind for kind, rules in RULES.items() if rules.is_graded)


def not_flexible(kind: str, extraction: str) -> str:
    """Why a kind cannot have this extraction, or empty."""
    if extraction == "strict" or kind in FLEXIBLE_KINDS:
        return ""
    return f"flexible reads numbers, for the verifiers {' and '.join(FLEXIBLE_KINDS)}: choose strict for {kind}"


def kind_label(kind: VerifierKind, extraction: ResponseExtraction = "strict") -> str:
    """A kind with the version of its rules, as evaluations record it: `math/3`, or `math/3 flexible`."""
    return f"{kind}/{RULES[kind].version}" + ("" if extraction == "strict" else f" {extraction}")


def score_word(kinds: Iterable[str]) -> str:
    """What a mean over held-out answers is called: accuracy only where every answer is correct or incorrect.

    kinds: verifiers, by name or as evaluations record them. With partial credit it is a mean reward; of both kinds
    together, a score.
    """
    are_graded = {kind.partition("/")[0] in GRADED_KINDS for kind in kinds}
    if len(are_graded) > 1:
        return "score"
    return "mean reward" if True in are_graded else "accuracy"
