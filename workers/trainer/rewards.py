"""The rewards of a run: the verifier of a benchmark, and the further terms that make a total with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from workers.agents.messages import Response
from workers.contract.spec.data import DataSpec
from workers.contract.spec.judge import JudgeFile
from workers.contract.spec.reward_function import FunctionFile
from workers.contract.spec.rewards import RewardsSpec, RewardTerm
from workers.contract.spec.run import RunSpec
from workers.contract.verifier_kinds import CODE_KINDS, JUDGED, kind_label
from workers.questions.dataset import Question
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier
from workers.verifiers.instructions.formats import boxed_reward, language_reward, length_reward, tags_reward
from workers.verifiers.instructions.language import LIBRARY, is_available
from workers.verifiers.judges.judge_verifier import JudgeVerifier, judge_key
from workers.verifiers.python.bubblewrap import sandbox_name
from workers.verifiers.scoring.repeated_judgements import (
    OTHER_HASH_SEED,
    SecondOpinion,
    repeated_calls,
    repeated_questions,
    repeated_tests,
)
from workers.verifiers.scoring.service import Verifier
from workers.verifiers.scoring.verdicts import Verdict

AnyVerifier = Verifier | FunctionVerifier | JudgeVerifier


@lru_cache(maxsize=64)  # an attempt uses one version of a file
def function_file(path: str) -> FunctionFile:
    """Errors: FunctionFileError."""
    return FunctionFile.read(Path(path))


@lru_cache(maxsize=64)
def judge_file(path: str) -> JudgeFile:
    """Errors: JudgeFileError."""
    return JudgeFile.read(Path(path))


def open_judge(path: str) -> JudgeVerifier:
    """Errors: JudgeFileError."""
    file = judge_file(path)
    return JudgeVerifier(file, judge_key(file.name))


class Judges:
    """The judges of an attempt, one verifier for each file: its budget and the rewards it knows are the attempt's."""

    def __init__(self) -> None:
        self._by_path: dict[Path, JudgeVerifier] = {}

    def __iter__(self) -> Iterator[JudgeVerifier]:
        return iter(self._by_path.values())

    def open(self, path: str) -> JudgeVerifier:
        """The judge of a file, one for all of its uses; `close` ends it. Errors: JudgeFileError."""
        place = Path(path).resolve()
        if place not in self._by_path:
            self._by_path[place] = open_judge(path)
        return self._by_path[place]

    def add(self, path: str, judge: JudgeVerifier) -> None:
        """One that is open already."""
        self._by_path[Path(path).resolve()] = judge

    def close(self) -> None:
        """End their processes."""
        for judge in self:
            judge.close()


def verifier_settings(data: DataSpec) -> dict[str, Any]:
    """What decides which verifier a benchmark has."""
    return data.model_dump(include={"verifier", "tolerance", "extraction", "reward_function", "judge"})


def open_set_verifiers(spec: RunSpec, judges: Judges) -> dict[str, AnyVerifier]:
    """The verifiers, by name, of further training sets whose verifier is not the run's own. Judges are the attempt's.

    Sets with the same settings share one verifier. Errors: FunctionFileError, JudgeFileError.
    """
    by_settings: dict[str, AnyVerifier] = {}
    verifiers: dict[str, AnyVerifier] = {}
    for data in spec.training.benchmarks:
        if verifier_settings(data) == verifier_settings(spec.data):
            continue
        settings = repr(verifier_settings(data))
        if settings not in by_settings:
            by_settings[settings] = open_verifier(data, spec.rewards, judges)
        verifiers[data.benchmark] = by_settings[settings]
    return verifiers


def open_verifier(data: DataSpec, rewards: RewardsSpec, judges: Judges | None = None) -> AnyVerifier:
    """The verifier of a benchmark; a judge is that of `judges`, which close it. Errors: FunctionFileError,
    JudgeFileError."""
    if data.verifier == "function":
        return open_function(data.reward_function, rewards)
    if data.verifier == JUDGED:
        return judges.open(data.judge) if judges else open_judge(data.judge)
    return Verifier(data.verifier, min(4, os.cpu_count() or 1), data.tolerance, data.extraction)


def open_function(path: str, rewards: RewardsSpec) -> FunctionVerifier:
    """Errors: FunctionFileError."""
    processes = min(4, os.cpu_count() or 1)
    return FunctionVerifier(function_file(path), processes, rewards.time_limit_s, rewards.memory_mib)


def open_second_opinion(data: DataSpec, rewards: RewardsSpec, judges: Judges) -> SecondOpinion | None:
    """What the audit compares the rewards of a benchmark with; None for a rule, which always judges alike.

    Errors: FunctionFileError, JudgeFileError.
    """
    if data.verifier in CODE_KINDS:
        return repeated_tests(data.verifier)
    return _repeated(data.verifier, data.reward_function, data.judge, rewards, judges)


def open_term_opinions(rewards: RewardsSpec, judges: Judges) -> dict[str, SecondOpinion]:
    """Second opinions on rewards by functions and judges, by name. Errors: FunctionFileError, JudgeFileError."""
    opinions = {one.name: _repeated(one.kind, one.function, one.judge, rewards, judges) for one in rewards.terms}
    return {name: opinion for name, opinion in opinions.items() if opinion is not None}


def _repeated(kind: str, function: str, judge: str, rewards: RewardsSpec, judges: Judges) -> SecondOpinion | None:
    if kind == "function":
        limits = rewards.time_limit_s, rewards.memory_mib
        return repeated_calls(FunctionVerifier(function_file(function), 1, *limits, hash_seed=OTHER_HASH_SEED))
    return repeated_questions(judges.open(judge)) if kind == JUDGED else None


def network_labels(spec: RunSpec) -> list[str]:
    """The functions of a run that may use the network, with their versions. Errors: FunctionFileError."""
    return sorted({file.label for file in map(function_file, spec.function_paths) if file.uses_network})


def sandbox_label(spec: RunSpec) -> str:
    """What fences a run's reward functions and the code of responses on this host; empty if it has neither."""
    kinds = {data.verifier for data in (*spec.training_data, *spec.evaluation.benchmarks)}
    return sandbox_name() if spec.function_paths or kinds & {*CODE_KINDS} else ""


def verifier_label(data: DataSpec) -> str:
    """The verifier as evaluations record it: `math/3`, `function/NAME@VERSION` or `judge/NAME@VERSION`."""
    if data.verifier == "function":
        return function_file(data.reward_function).label
    if data.verifier == JUDGED:
        return judge_file(data.judge).label
    return kind_label(data.verifier, data.extraction)


def case_of(text: str, question: Question) -> Case:
    """What a reward function or a judge is told of a response."""
    fields = {"id": question.id, "subject": question.subject, "difficulty": question.difficulty}
    return Case(question.question, question.answer, text, fields)


class RewardTerms:
    """The further rewards of a run. The processes of functions and local judges start with the first call."""

    def __init__(self, spec: RunSpec, judges: Judges) -> None:
        """Errors: FunctionFileError, JudgeFileError."""
        self.spec, self.terms = spec, spec.rewards.terms
        self._scorers: dict[str, FunctionVerifier | JudgeVerifier] = {}
        for term in self.terms:
            if term.kind == "function":
                self._scorers[term.name] = open_function(term.function, spec.rewards)
            elif term.kind == "judge":
                self._scorers[term.name] = judges.open(term.judge)

    @property
    def judges(self) -> dict[str, JudgeVerifier]:
        """The judges, by the name of their reward."""
        return {name: scorer for name, scorer in self._scorers.items() if isinstance(scorer, JudgeVerifier)}

    @property
    def labels(self) -> list[str]:
        """The functions and judges with their versions."""
        return [scorer.file.label for scorer in self._scorers.values()]

    def score(self, responses: Sequence[Response], questions: Sequence[Question]) -> dict[str, list[Verdict]]:
        """Verdicts on each response by the name of the term. Errors: RewardFunctionError, JudgeError, VerifierError."""
        return {term.name: self._of_term(term, responses, questions) for term in self.terms}

    def _of_term(self, term: RewardTerm, responses: Sequence[Response], questions: Sequence[Question]) -> list[Verdict]:
        if scorer := self._scorers.get(term.name):
            pairs = zip(responses, questions, strict=True)
            return scorer.score_cases([case_of(one.text, question) for one, question in pairs])
        limit = self.spec.rollout.max_completion_length
        rewards = {
            "boxed": lambda response, question: boxed_reward(response.text),
            "tags": lambda response, question: tags_reward(response.text, term.tags),
            "length": lambda response, question: length_reward(response.num_tokens, term.length, limit),
            "language": lambda response, question: language_reward(response.text, term.language, question.question),
        }
        if term.kind == "language" and not is_available():
            raise VerifierError(
                f"the reward {term.name!r} needs {LIBRARY}, which is not installed: pip install {LIBRARY}"
            )
        reward = rewards[term.kind]
        return [Verdict(reward(*pair), term.kind) for pair in zip(responses, questions, strict=True)]

    def close(self) -> None:
        """End the processes of functions; judges are the attempt's."""
        for scorer in self._scorers.values():
            if isinstance(scorer, FunctionVerifier):
                scorer.close()
