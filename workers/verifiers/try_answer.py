"""The verdict on one response, as a short child process of the web with limits.

`python -m workers.verifiers.try_answer` reads {verifier, tolerance (may be null), extraction, gold, response} from
stdin and prints {reward (1, 0 or null), reason, extracted (the answer in the response, or null), seconds (with the
start of a verifier process if one is needed)}, or {error}.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from workers.verifiers.stdin_request import answer_stdin, verifier_of
from workers.verifiers.voting import stated_answer

MAX_ANSWER = 1000  # characters of the extracted answer


def try_answer(request: dict[str, Any]) -> dict[str, Any]:
    """The verdict as JSON. Errors: VerifierError, ValueError."""
    extraction = request.get("extraction", "strict")
    with verifier_of(request, 1, extraction) as verifier:
        begin = time.monotonic()
        [verdict] = verifier.score([request["response"]], [request["gold"]])
        seconds = time.monotonic() - begin
    return {
        "reward": verdict.reward,
        "reason": verdict.reason,
        "extracted": stated_answer(request["verifier"], request["response"], extraction)[:MAX_ANSWER] or None,
        "seconds": round(seconds, 6),
    }


if __name__ == "__main__":
    sys.exit(answer_stdin(try_answer))
