"""The rewards that a function or a judge gives to a few responses: a short child process of the web, and a command.

`python -m workers.verifiers.try_out.try_reward` reads {name, source, cases: [{question, answer, response, fields}]} of
a function, or {name, settings, key, cases} of a judge, from stdin and prints {version, sandbox (of a function),
results: [{reward (null: unscorable), reason, parts, seconds, cost}]}, or {error}. With the arguments FILE CASES.jsonl,
FILE being a function's (.py) or a judge's, it prints a result for each line {"question", "answer", "response"}; other
keys are its fields.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from workers.contract.spec.judge import JudgeFile, JudgeSettings
from workers.contract.spec.reward_function import FunctionFile, check_source
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier
from workers.verifiers.judges.judge_verifier import JudgeVerifier, judge_key
from workers.verifiers.python.bubblewrap import sandbox_name
from workers.verifiers.scoring.verdicts import Verdict
from workers.verifiers.try_out.try_answer import answer_stdin

OF_RUNS = ", then resume the run"  # ends a verifier's remedy; here is no run
CALL_LIMIT_S = 5.0  # of a function
REQUEST_LIMIT_S = 60.0  # of a judge, however long its own limit is


def try_reward(request: dict[str, Any]) -> dict[str, Any]:
    """The results as JSON. Errors: VerifierError, ValueError, KeyError."""
    try:
        return _tried(request)
    except VerifierError as error:
        raise VerifierError(str(error).removesuffix(OF_RUNS)) from None


def _tried(request: dict[str, Any]) -> dict[str, Any]:
    cases = [Case(**case) for case in request["cases"]]
    if "source" in request:
        check_source(request["source"])
        function = FunctionFile(request["name"], request["source"])
        with FunctionVerifier(function, time_limit_s=CALL_LIMIT_S) as verifier:
            verifier.check_loads()
            results = [_of_function(verifier, case) for case in cases]
            return {"version": function.version, "sandbox": sandbox_name(), "results": results}
    settings = JudgeSettings.model_validate(request["settings"])
    limits = {"time_limit_s": min(settings.time_limit_s, REQUEST_LIMIT_S), "retries": min(settings.retries, 1)}
    file = JudgeFile(request["name"], settings.model_copy(update=limits))
    with JudgeVerifier(file, request["key"]) as judge:
        return {"version": file.version, "results": [*map(_result, judge.score_cases(cases))]}


def _of_function(verifier: FunctionVerifier, case: Case) -> dict[str, Any]:
    begin = time.monotonic()
    [verdict] = verifier.score_cases([case])
    return _result(verdict) | {"seconds": round(time.monotonic() - begin, 6)}


def _result(verdict: Verdict) -> dict[str, Any]:
    call = verdict.call
    return {
        "reward": verdict.reward,
        "reason": verdict.reason,
        "parts": verdict.parts,
        "seconds": round(call.seconds, 6) if call else 0.0,
        "cost": call.cost if call else 0.0,
    }


def main(arguments: list[str]) -> int:
    if not arguments:
        return answer_stdin(try_reward)
    path, cases = Path(arguments[0]), []
    for line in Path(arguments[1]).read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        question, answer, response = (str(fields.pop(key)) for key in ("question", "answer", "response"))
        cases.append(Case(question, answer, response, fields))
    if path.suffix == ".py":
        with FunctionVerifier(FunctionFile.read(path)) as verifier:
            for case in cases:
                print(json.dumps(_of_function(verifier, case)), flush=True)
        return 0
    file = JudgeFile.read(path)
    with JudgeVerifier(file, judge_key(file.name)) as judge:
        for verdict in judge.score_cases(cases):
            print(json.dumps(_result(verdict)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
