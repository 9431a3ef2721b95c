"""The second opinions of the reward audit: the same judgement once more.

`AUDIT_METHODS` of the contract lists the kinds that have one. It finds rewards that depend on chance, on time or on
earlier calls; it does not find a wrong rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers import heartbeat
from workers.contract.verifier_kinds import VerifierKind
from workers.verifiers.children.child_client import VerifierProcess
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier
from workers.verifiers.judges.judge_verifier import JudgeError, JudgeUnusable, JudgeVerifier
from workers.verifiers.python.python_tests import python_verdict
from workers.verifiers.scoring.verdicts import Verdict

SMALL = 1e-4  # a larger difference of two rewards is a contradiction
JUDGED_SMALL = 0.1  # the same for a judge: a tenth of its scale
OTHER_HASH_SEED = 1  # that of the first judgement is 0


@dataclass(frozen=True, eq=False)
class SecondOpinion:
    """tolerance: the largest difference of two rewards that agree.  subject: what judges, with its name and version.
    ask: a reward for each case, in order, None where there is no opinion; error: VerifierError.  close: ends its
    processes."""

    tolerance: float
    subject: str
    ask: Callable[[Sequence[Case]], list[float | None]]
    close: Callable[[], None]


def repeated_tests(kind: VerifierKind) -> SecondOpinion:
    """The same tests of the same code, in new processes with another hash seed."""
    child = VerifierProcess("workers.verifiers.python.python_tests", kind, str(OTHER_HASH_SEED))

    def ask_one(case: Case) -> float | None:
        query = python_verdict(case.response, case.answer)
        if isinstance(query, Verdict):
            return query.reward
        heartbeat.send_heartbeat()
        return child.ask(*query).reward

    return SecondOpinion(SMALL, "the benchmark's Python tests", lambda cases: [*map(ask_one, cases)], child.close)


def repeated_calls(function: FunctionVerifier) -> SecondOpinion:
    """The same calls of a reward function, in a new process for each batch, with another hash seed."""

    def ask(cases: Sequence[Case]) -> list[float | None]:
        try:
            return [verdict.reward for verdict in function.score_cases(cases)]
        finally:
            function.restart()

    subject = f"the reward function {function.file.name!r} (version {function.file.version})"
    return SecondOpinion(SMALL, subject, ask, function.close)


def repeated_questions(judge: JudgeVerifier) -> SecondOpinion:
    """The same questions to a judge, asked anew in the reverse order. The judge is closed by its owner."""

    def ask(cases: Sequence[Case]) -> list[float | None]:
        """No opinions if it does not answer now. Error: JudgeUnusable."""
        try:
            return [verdict.reward for verdict in judge.score_again(cases)]
        except JudgeUnusable:
            raise
        except JudgeError:
            return [None] * len(cases)

    subject = f"the judge {judge.file.name!r} (version {judge.file.version})"
    return SecondOpinion(JUDGED_SMALL, subject, ask, lambda: None)
