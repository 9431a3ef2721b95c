"""The rewards that a function gives to a few responses, as a short child process of the web, and as a command.

`python -m workers.verifiers.functions.try_function` reads {name, source, cases: [{question, answer, response,
fields}]} from stdin and prints {version, results: [{reward (null: unscorable), reason, parts, seconds}]}, or {error}.
`python -m workers.verifiers.functions.try_function FILE CASES.jsonl` prints a reward for each line
{"question", "answer", "response"}; other keys of a line are its fields.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from workers.contract.spec.reward_function import FunctionFile, check_source
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier
from workers.verifiers.stdin_request import answer_stdin

TIME_LIMIT_S = 5.0  # of a call


def try_function(request: dict[str, Any]) -> dict[str, Any]:
    """The results as JSON. Errors: VerifierError, ValueError, KeyError."""
    check_source(request["source"])
    file, results = FunctionFile(request["name"], request["source"]), []
    with FunctionVerifier(file, time_limit_s=TIME_LIMIT_S) as verifier:
        verifier.check_loads()
        for case in request["cases"]:
            begin = time.monotonic()
            [verdict] = verifier.score_cases([Case(**case)])
            seconds = round(time.monotonic() - begin, 6)
            results.append(
                {"reward": verdict.reward, "reason": verdict.reason, "parts": verdict.parts, "seconds": seconds}
            )
    return {"version": file.version, "results": results}


def main(arguments: list[str]) -> int:
    if not arguments:
        return answer_stdin(try_function)
    function, cases = FunctionFile.read(Path(arguments[0])), Path(arguments[1])
    with FunctionVerifier(function) as verifier:
        for line in cases.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            texts = {key: str(record.pop(key)) for key in ("question", "answer", "response")}
            [verdict] = verifier.score_cases([Case(**texts, fields=record)])
            print(json.dumps({"reward": verdict.reward, "reason": verdict.reason, **verdict.parts}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
