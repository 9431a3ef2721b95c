"""What the short child processes of the web do alike: a request in JSON on stdin, an answer in JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from workers.contract.verifier_kinds import ResponseExtraction
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.service import Verifier


def verifier_of(request: dict[str, Any], workers: int, extraction: ResponseExtraction) -> Verifier:
    """The verifier that the request names, with its tolerance if one is set. Errors: VerifierError, ValueError."""
    tolerance = {} if request.get("tolerance") is None else {"tolerance": request["tolerance"]}
    return Verifier(request["verifier"], workers, extraction=extraction, **tolerance)


def answer_stdin(answer_of: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Print the answer, or {error} with exit status 1."""
    try:
        answer = answer_of(json.load(sys.stdin))
    except (VerifierError, ValueError, KeyError) as error:
        answer = {"error": str(error)[:500]}
    print(json.dumps(answer, ensure_ascii=True))
    return 1 if "error" in answer else 0
