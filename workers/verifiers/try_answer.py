"""The verdict on one response, and what two extractions read of many; a short child process of the web with limits.

`python -m workers.verifiers.try_answer` reads {verifier, tolerance (may be null), extraction, gold, response} from
stdin and prints {reward (1, 0 or null), reason, extracted (the answer in the response, or null), seconds (with the
start of a verifier process if one is needed)}, or {error}. With pairs: [[response, gold]] in place of the last three
it prints {num_answers, strict: {read, correct}, flexible: {read, correct}}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from workers.contract.verifier_kinds import RESPONSE_EXTRACTIONS, ResponseExtraction
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.service import Verifier
from workers.verifiers.verdicts import CORRECT, NO_ANSWER, NO_NUMBER
from workers.verifiers.voting import stated_answer

MAX_ANSWER = 1000  # characters of the extracted answer


def answer_stdin(answer_of: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Print the answer to a request in JSON on stdin, or {error} with exit status 1."""
    try:
        answer = answer_of(json.load(sys.stdin))
    except (VerifierError, ValueError, KeyError) as error:
        answer = {"error": str(error)[:500]}
    print(json.dumps(answer, ensure_ascii=True))
    return 1 if "error" in answer else 0


def _verifier_of(request: dict[str, Any], workers: int, extraction: ResponseExtraction) -> Verifier:
    """Errors: VerifierError, ValueError, KeyError."""
    tolerance = {} if request.get("tolerance") is None else {"tolerance": request["tolerance"]}
    return Verifier(request["verifier"], workers, extraction=extraction, **tolerance)


def try_answer(request: dict[str, Any]) -> dict[str, Any]:
    """The verdict as JSON, or the counts. Errors: VerifierError, ValueError, KeyError."""
    if "pairs" in request:
        return extraction_shares(request)
    extraction = request.get("extraction", "strict")
    with _verifier_of(request, 1, extraction) as verifier:
        begin = time.monotonic()
        [verdict] = verifier.score([request["response"]], [request["gold"]])
        seconds = time.monotonic() - begin
    return {
        "reward": verdict.reward,
        "reason": verdict.reason,
        "extracted": stated_answer(request["verifier"], request["response"], extraction)[:MAX_ANSWER] or None,
        "seconds": round(seconds, 6),
    }


def extraction_shares(request: dict[str, Any]) -> dict[str, Any]:
    """The counts as JSON. Errors: VerifierError, ValueError, KeyError."""
    responses, golds = [pair[0] for pair in request["pairs"]], [pair[1] for pair in request["pairs"]]
    counts: dict[str, Any] = {"num_answers": len(responses)}
    for extraction in RESPONSE_EXTRACTIONS:
        with _verifier_of(request, 2, extraction) as verifier:
            verdicts = verifier.score(responses, golds)
        counts[extraction] = {
            "read": sum(verdict not in (NO_ANSWER, NO_NUMBER) for verdict in verdicts),
            "correct": sum(verdict.reward == CORRECT.reward for verdict in verdicts),
        }
    return counts


if __name__ == "__main__":
    sys.exit(answer_stdin(try_answer))
