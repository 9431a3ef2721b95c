"""One response against one reference answer, by the real verifier: `python -m workers.verifiers.try_answer <
request.json`.

The request: {verifier, tolerance (may be null), gold, response}. One JSON object is printed: {reward (1, 0 or null),
reason, extracted (the answer found in the response, or null), seconds (where plain text cannot settle it, with the
start of the process that can)}, or {error}. The web runs this as a short child process with limits.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.service import Verifier
from workers.verifiers.voting import spoken_answer

MAX_ANSWER = 1000  # characters of the found answer that are told


def try_answer(request: dict[str, Any]) -> dict[str, Any]:
    """Errors: VerifierError, ValueError."""
    tolerance = {} if request.get("tolerance") is None else {"tolerance": request["tolerance"]}
    with Verifier(request["verifier"], 1, **tolerance) as verifier:
        began = time.monotonic()
        [verdict] = verifier.score([request["response"]], [request["gold"]])
        seconds = time.monotonic() - began
    return {
        "reward": verdict.reward,
        "reason": verdict.reason,
        "extracted": spoken_answer(request["verifier"], request["response"])[:MAX_ANSWER] or None,
        "seconds": round(seconds, 6),
    }


def main() -> int:
    """Print the verdict."""
    try:
        answer = try_answer(json.load(sys.stdin))
    except (VerifierError, ValueError, KeyError) as error:
        answer = {"error": str(error)[:500]}
    print(json.dumps(answer, ensure_ascii=True))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
