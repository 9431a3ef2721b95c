"""How many sampled answers strict and flexible extraction read, as a short child process of the web with limits.

`python -m workers.verifiers.extraction_shares` reads {verifier, tolerance (may be null), pairs: [[response, gold]]}
from stdin and prints {num_answers, strict: {read, correct}, flexible: {read, correct}}, or {error}.
"""

from __future__ import annotations

import sys
from typing import Any

from workers.contract.verifier_kinds import RESPONSE_EXTRACTIONS
from workers.verifiers.stdin_request import answer_stdin, verifier_of
from workers.verifiers.verdicts import CORRECT, NO_ANSWER, NO_NUMBER


def extraction_shares(request: dict[str, Any]) -> dict[str, Any]:
    """The counts as JSON. Errors: VerifierError, ValueError."""
    responses, golds = [pair[0] for pair in request["pairs"]], [pair[1] for pair in request["pairs"]]
    counts: dict[str, Any] = {"num_answers": len(responses)}
    for extraction in RESPONSE_EXTRACTIONS:
        with verifier_of(request, 2, extraction) as verifier:
            verdicts = verifier.score(responses, golds)
        counts[extraction] = {
            "read": sum(verdict not in (NO_ANSWER, NO_NUMBER) for verdict in verdicts),
            "correct": sum(verdict.reward == CORRECT.reward for verdict in verdicts),
        }
    return counts


if __name__ == "__main__":
    sys.exit(answer_stdin(extraction_shares))
