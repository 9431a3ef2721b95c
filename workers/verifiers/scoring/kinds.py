"""The rules of each kind of verifier: what text alone decides, what goes to a child process, which golds are unclear.

`workers.verifiers.scoring.service` runs the processes. A gold is a reference answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from workers.contract.verifier_kinds import ResponseExtraction, VerifierKind
from workers.verifiers.graded.fields import json_verdict, unclear_object
from workers.verifiers.graded.words import rouge_verdict, unclear_text, words_verdict
from workers.verifiers.instructions.verdict import instructions_verdict, unclear_instructions
from workers.verifiers.mathematics.answers import clean, decide, is_other_unit, read_answer, read_beside
from workers.verifiers.mathematics.extraction import MAX_ANSWER_CHARACTERS, after_thoughts, final_answer
from workers.verifiers.mathematics.reading import answer_in
from workers.verifiers.python.degenerate.solutions import TRIAL, TrialKind
from workers.verifiers.python.python_tests import python_verdict, unclear_tests
from workers.verifiers.reasoning_gym.scores import gym_verdict, unclear_entry
from workers.verifiers.scoring.verdicts import (
    CORRECT,
    INCORRECT,
    NO_ANSWER,
    NO_NUMBER,
    NO_REFERENCE,
    TOO_LONG,
    Query,
    Verdict,
)
from workers.verifiers.short_answers.countdown import countdown_verdict, unclear_task
from workers.verifiers.short_answers.multiple_choice import choice_verdict, unclear_choice
from workers.verifiers.short_answers.numeric import numeric_verdict
from workers.verifiers.short_answers.regex import regex_verdict

PYTHON_TESTS = "workers.verifiers.python.python_tests"
# A gold with more words than this is prose, which no algebra compares.
MAX_ANSWER_WORDS = 8
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}")


@dataclass(frozen=True)
class Kind:
    """quick_verdict(response, gold): a verdict, or what to ask a child process; unclear_gold(gold): why no answer can
    match, or empty; module, arguments: of the child process."""

    quick_verdict: Callable[[str, str], Verdict | Query]
    unclear_gold: Callable[[str], str]
    module: str = ""
    arguments: tuple[str, ...] = ()


def kind_of(name: VerifierKind | TrialKind, tolerance: float, extraction: ResponseExtraction = "strict") -> Kind:
    """The rules of a kind. tolerance: relative, of `numeric` only; extraction: of `math` and `numeric`."""
    numeric = partial(numeric_verdict, tolerance=tolerance, extraction=extraction)
    math = partial(math_verdict, extraction=extraction)
    kinds = {
        "math": Kind(math, unclear_math, "workers.verifiers.mathematics.math_equal"),
        "exact": Kind(_without_thoughts(exact_verdict), unclear_braces),
        "choice": Kind(_without_thoughts(choice_verdict), unclear_choice),
        "numeric": Kind(numeric, unclear_length, "workers.verifiers.short_answers.numeric", (repr(tolerance),)),
        "regex": Kind(_without_thoughts(regex_verdict), lambda gold: "", "workers.verifiers.short_answers.regex"),
        "countdown": Kind(_without_thoughts(countdown_verdict), unclear_task),
        "words": Kind(words_verdict, unclear_text),
        "rouge": Kind(rouge_verdict, unclear_text),
        "json": Kind(json_verdict, unclear_object),
        "instructions": Kind(instructions_verdict, unclear_instructions),
        "reasoning_gym": Kind(gym_verdict, unclear_entry, "workers.verifiers.reasoning_gym.scores"),
        "python": Kind(python_verdict, unclear_tests, PYTHON_TESTS, ("python", "0")),
        "python_partial": Kind(python_verdict, unclear_tests, PYTHON_TESTS, ("python_partial", "0")),
        TRIAL: Kind(python_verdict, unclear_tests, PYTHON_TESTS, (TRIAL, "0")),
    }
    if name not in kinds:
        raise KeyError(f"the verifier {name} has no rules of its own")
    return kinds[name]


def _without_thoughts(verdict: Callable[[str, str], Verdict | Query]) -> Callable[[str, str], Verdict | Query]:
    """The rule of a kind that reads what follows the thoughts in `<think>`; nothing if they are not closed."""
    return lambda completion, gold: verdict(after_thoughts(completion), gold)


def exact_verdict(completion: str, gold: str) -> Verdict:
    """Compares the last box, or the response without one, with the gold; spaces around them do not count."""
    answer = final_answer(completion) if "\\boxed" in completion else completion
    if answer is None:
        return NO_ANSWER
    return CORRECT if answer.strip() == gold.strip() else INCORRECT


def math_verdict(completion: str, gold: str, extraction: ResponseExtraction = "strict") -> Verdict | Query:
    """The verdict if text alone decides, else the cleaned answer and gold."""
    is_list = "," in gold or "\\pm" in gold
    final = answer_in(completion, extraction, is_list=is_list)
    if final is None or not final.strip():
        return NO_ANSWER if extraction == "strict" else NO_NUMBER
    if final.strip() == gold.strip():
        return CORRECT
    if not gold.strip():
        return NO_REFERENCE
    if len(final) > MAX_ANSWER_CHARACTERS:
        return TOO_LONG
    reference = read_answer(gold)
    answer = read_beside(final, reference)
    decision = False if is_other_unit(answer, reference) else decide(answer.text, reference.text)
    if decision is None:
        return answer.text, reference.text
    return CORRECT if decision else INCORRECT


def unclear_braces(gold: str) -> str:
    """A gold with unbalanced braces fits in no box."""
    return "" if final_answer(f"\\boxed{{{gold}}}") == gold else "its braces do not close"


def unclear_length(gold: str) -> str:
    """Unbalanced braces, or longer than any answer that is read."""
    too_long = f"longer than {MAX_ANSWER_CHARACTERS} characters"
    return unclear_braces(gold) or (too_long if len(gold) > MAX_ANSWER_CHARACTERS else "")


def unclear_math(gold: str) -> str:
    """As above, or prose."""
    if reason := unclear_length(gold):
        return reason
    words = len(_WORD.findall(clean(gold)))
    return f"prose of {words} words: only the same text would match" if words > MAX_ANSWER_WORDS else ""
