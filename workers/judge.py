"""One response against one reference answer, by the real verifier: `python -m workers.judge < request.json`.

The request: {verifier, tolerance (may be null), gold, response}. One JSON object is printed: {reward (1, 0 or null),
reason, extracted (the answer found in the response, or null), seconds (where plain text cannot settle it, with the
start of the process that can)}, or {error}. The web runs this as a short child process with limits.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from workers.answers import final_answer
from workers.rewards import Verifier
from workers.warm_child import VerifierError


def judge(request: dict[str, Any]) -> dict[str, Any]:
    """Errors: VerifierError, ValueError."""
    tolerance = {} if request.get("tolerance") is None else {"tolerance": request["tolerance"]}
    with Verifier(request["verifier"], 1, **tolerance) as verifier:
        began = time.monotonic()
        [verdict] = verifier.score([request["response"]], [request["gold"]])
        seconds = time.monotonic() - began
    return {
        "reward": verdict.reward,
        "reason": verdict.reason,
        "extracted": final_answer(request["response"]),
        "seconds": round(seconds, 6),
    }


def main() -> int:
    """Print the verdict."""
    try:
        answer = judge(json.load(sys.stdin))
    except (VerifierError, ValueError) as error:
        answer = {"error": str(error)[:500]}
    print(json.dumps(answer, ensure_ascii=True))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
