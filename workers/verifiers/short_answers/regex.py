"""The regex verifier: the reference answer is a regular expression in Python's syntax for the whole final answer.

Matching may never end, and Python cannot interrupt it, so it runs in a child process that can be killed:
`python -m workers.verifiers.short_answers.regex MEMORY_BYTES SECONDS`.
"""

from __future__ import annotations

import re
import sys

from workers.verifiers.children.child_server import Unscorable, serve_verifier
from workers.verifiers.mathematics.extraction import final_answer
from workers.verifiers.scoring.verdicts import NO_ANSWER, NO_REFERENCE, Query, Verdict

MAX_CHARACTERS = 10_000
TOO_LONG = Verdict(0.0, f"answer longer than {MAX_CHARACTERS} characters")


def regex_verdict(completion: str, gold: str) -> Verdict | Query:
    """For the child process: the last box, else the last stated answer, else the response; and the gold."""
    text = final_answer(completion)
    if text is None and "\\boxed" not in completion:
        text = completion
    if text is None or not text.strip():
        return NO_ANSWER
    if not gold.strip():
        return NO_REFERENCE
    return TOO_LONG if len(text) > MAX_CHARACTERS else (text.strip(), gold)


def is_match(gold: str, answer: str) -> bool:
    """Whether the whole answer matches. Error: Unscorable if the gold is not a regular expression."""
    try:
        return re.fullmatch(gold, answer) is not None
    except (re.error, OverflowError) as error:
        raise Unscorable(f"the reference answer is no regular expression: {error}") from None


if __name__ == "__main__":
    serve_verifier(is_match, int(sys.argv[1]), int(sys.argv[2]))
