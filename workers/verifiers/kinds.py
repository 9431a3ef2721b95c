"""The rules of each kind of verifier: what text alone settles, what goes to which child process, what is doubted.

The rewards' station in the middle: `workers.verifiers.service` runs the processes, the files named here know the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from workers.contract.verifier_kinds import VerifierKind
from workers.verifiers import choice, numeric
from workers.verifiers.mathematics.answers import MAX_ANSWER_CHARACTERS, clean, decide, final_answer
from workers.verifiers.python import python_tests
from workers.verifiers.regex import regex_verdict as settle_regex
from workers.verifiers.verdicts import NO_ANSWER, NO_REFERENCE, RIGHT, TOO_LONG, WRONG, Pair, Verdict

# A reference answer with more words than this is prose, which no algebra compares.
MAX_ANSWER_WORDS = 8
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}")


@dataclass(frozen=True)
class Kind:
    """quick_verdict(response, reference): a verdict, or what to ask a child. unclear_gold(reference): why nothing could
    match it.

    module: of the child process, with its arguments.
    """

    quick_verdict: Callable[[str, str], Verdict | Pair]
    unclear_gold: Callable[[str], str]
    module: str = ""
    arguments: tuple[str, ...] = ()


def kind_of(name: VerifierKind, tolerance: float) -> Kind:
    """The rules of a kind. tolerance: relative, read by `numeric` only."""
    kinds = {
        "math": Kind(math_verdict, doubt_math, "workers.verifiers.mathematics.math_equal"),
        "exact": Kind(exact_verdict, doubt_braces),
        "choice": Kind(choice.choice_verdict, choice.unclear_choice),
        "numeric": Kind(
            partial(numeric.numeric_verdict, tolerance=tolerance),
            doubt_length,
            "workers.verifiers.numeric",
            (repr(tolerance),),
        ),
        "regex": Kind(settle_regex, lambda gold: "", "workers.verifiers.regex"),
        "python": Kind(
            python_tests.python_verdict, python_tests.unclear_tests, "workers.verifiers.python.python_tests"
        ),
    }
    return kinds[name]


def exact_verdict(completion: str, gold: str) -> Verdict:
    """The last boxed text, or the whole response where it has no box, against the gold, spaces around them aside."""
    answer = final_answer(completion) if "\\boxed" in completion else completion
    if answer is None:
        return NO_ANSWER
    return RIGHT if answer.strip() == gold.strip() else WRONG


def math_verdict(completion: str, gold: str) -> Verdict | Pair:
    """The verdict where text alone settles it, else the cleaned (answer, gold)."""
    final = final_answer(completion)
    if final is None or not final.strip():
        return NO_ANSWER
    if final.strip() == gold.strip():
        return RIGHT
    if not gold.strip():
        return NO_REFERENCE
    if len(final) > MAX_ANSWER_CHARACTERS:
        return TOO_LONG
    answer, cleaned_gold = clean(final), clean(gold)
    decided = decide(answer, cleaned_gold)
    if decided is None:
        return answer, cleaned_gold
    return RIGHT if decided else WRONG


def doubt_braces(gold: str) -> str:
    """A reference whose braces do not close stands whole in no box."""
    return "" if final_answer(f"\\boxed{{{gold}}}") == gold else "its braces do not close"


def doubt_length(gold: str) -> str:
    """Longer than any answer that is read."""
    too_long = f"longer than {MAX_ANSWER_CHARACTERS} characters"
    return doubt_braces(gold) or (too_long if len(gold) > MAX_ANSWER_CHARACTERS else "")


def doubt_math(gold: str) -> str:
    """As above, or prose."""
    if reason := doubt_length(gold):
        return reason
    words = len(_WORD.findall(clean(gold)))
    return f"prose of {words} words: only the same text would match" if words > MAX_ANSWER_WORDS else ""
