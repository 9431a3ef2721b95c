"""The rewards that a judge gives to a few responses, as a short child process of the web, and as a command.

`python -m workers.verifiers.judges.try_judge` reads {name, settings, key, cases: [{question, answer, response,
fields}]} from stdin and prints {version, results: [{reward (null: unscorable), reason, parts, seconds, cost}]}, or
{error}. `python -m workers.verifiers.judges.try_judge FILE CASES.jsonl` prints a reward for each line {"question",
"answer", "response"}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from workers.contract.spec.judge import JudgeFile, JudgeSettings
from workers.verifiers.functions.function_verifier import Case
from workers.verifiers.judges.judge_verifier import JudgeVerifier
from workers.verifiers.judges.keys import judge_key
from workers.verifiers.stdin_request import answer_stdin
from workers.verifiers.verdicts import Verdict

TIME_LIMIT_S = 60.0  # of a request, however long the judge's own limit is


def try_judge(request: dict[str, Any]) -> dict[str, Any]:
    """The results as JSON. Errors: VerifierError, ValueError, KeyError."""
    settings = JudgeSettings.model_validate(request["settings"])
    file = JudgeFile(request["name"], settings)
    short = settings.model_copy(
        update={"time_limit_s": min(settings.time_limit_s, TIME_LIMIT_S), "retries": min(settings.retries, 1)}
    )
    with JudgeVerifier(JudgeFile(file.name, short), request["key"]) as judge:
        verdicts = judge.score_cases([Case(**case) for case in request["cases"]])
    return {"version": file.version, "results": [_result(verdict) for verdict in verdicts]}


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
        return answer_stdin(try_judge)
    file, cases = JudgeFile.read(Path(arguments[0])), Path(arguments[1])
    with JudgeVerifier(file, judge_key(file.name)) as judge:
        lines = [json.loads(line) for line in cases.read_text(encoding="utf-8").splitlines()]
        some = [Case(str(line["question"]), str(line["answer"]), str(line["response"])) for line in lines]
        for verdict in judge.score_cases(some):
            print(json.dumps(_result(verdict)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
