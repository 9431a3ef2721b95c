"""The second opinions of the reward audit: the same judgement once more.

`AUDIT_METHODS` of the contract lists the kinds that have one. It finds rewards that depend on chance, on time or on
earlier calls; it does not find a wrong rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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


class SecondOpinion(Protocol):
    """tolerance: the largest difference of two rewards that agree.  subject: what judges, with its name and version."""

    tolerance: float
    subject: str

    def ask(self, cases: Sequence[Case]) -> list[float | None]:
        """A reward for each case, in order; None where there is no opinion. Error: VerifierError."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


class RepeatedTests:
    """The same tests of the same code, in new processes with another hash seed."""

    tolerance, subject = SMALL, "the benchmark's Python tests"

    def __init__(self, kind: VerifierKind) -> None:
        self._child = VerifierProcess("workers.verifiers.python.python_tests", kind, str(OTHER_HASH_SEED))

    def ask(self, cases: Sequence[Case]) -> list[float | None]:
        """Error: VerifierError."""
        return [self._reward(case) for case in cases]

    def _reward(self, case: Case) -> float | None:
        query = python_verdict(case.response, case.answer)
        if isinstance(query, Verdict):
            return query.reward
        heartbeat.send_heartbeat()
        return self._child.ask(*query).reward

    def close(self) -> None:
        """End its process."""
        self._child.close()


class RepeatedCalls:
    """The same calls of a reward function, in a new process for each batch, with another hash seed."""

    tolerance = SMALL

    def __init__(self, function: FunctionVerifier) -> None:
        self._function = function
        self.subject = f"the reward function {function.file.name!r} (version {function.file.version})"

    def ask(self, cases: Sequence[Case]) -> list[float | None]:
        """Errors: RewardFunctionError, VerifierError."""
        try:
            return [verdict.reward for verdict in self._function.score_cases(cases)]
        finally:
            self._function.restart()

    def close(self) -> None:
        """End its processes."""
        self._function.close()


class RepeatedQuestions:
    """The same questions to a judge, asked anew in the reverse order. The judge is closed by its owner."""

    tolerance = JUDGED_SMALL

    def __init__(self, judge: JudgeVerifier) -> None:
        self._judge = judge
        self.subject = f"the judge {judge.file.name!r} (version {judge.file.version})"

    def ask(self, cases: Sequence[Case]) -> list[float | None]:
        """No opinions if it does not answer now. Error: JudgeUnusable."""
        try:
            return [verdict.reward for verdict in self._judge.score_again(cases)]
        except JudgeUnusable:
            raise
        except JudgeError:
            return [None] * len(cases)

    def close(self) -> None:
        """Nothing of its own."""
