"""The verdict on one response; a short child process of the web with limits.

`python -m workers.verifiers.try_out.try_answer` reads {verifier, tolerance (may be null), extraction, gold, response}
from stdin and prints {reward (1, 0 or null), reason, extracted (the answer in the response, or null), seconds (with the
start of a verifier process if one is needed)}, or {error}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.scoring.service import Verifier
from workers.verifiers.scoring.voting import stated_answer

MAX_ANSWER = 1000  # characters of the extracted answer


def answer_stdin(answer_of: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Print the answer to a request in JSON on stdin, or {error} with exit status 1."""
    try:
        answer = answer_of(json.load(sys.stdin))
    except (VerifierError, ValueError, KeyError) as error:
        answer = {"error": str(error)[:500]}
    print(json.dumps(answer, ensure_ascii=True))
    return 1 if "error" in answer else 0


def try_answer(request: dict[str, Any]) -> dict[str, Any]:
    """The verdict as JSON. Errors: VerifierError, ValueError, KeyError."""
    extraction = request.get("extraction", "strict")
    tolerance = {} if request.get("tolerance") is None else {"tolerance": request["tolerance"]}
    with Verifier(request["verifier"], 1, extraction=extraction, **tolerance) as verifier:
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
