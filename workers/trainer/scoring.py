"""Step 2 of Algorithm 1: rewards of all rollouts by the verifier, and a pause if the verifier fails.

Too many unscorable answers mean that the verifier fails. Learning from the few that remain would drive omega to its
clamp, so the run waits, tries again, and at last pauses with the reason.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor

from workers import heartbeat
from workers.agents.messages import FinalAnswer, GeneratedRollouts, Response
from workers.contract.advantages import REWARD_MAX
from workers.contract.spec.rewards import VERIFIER
from workers.questions.dataset import Question
from workers.trainer.rewards import AnyVerifier, RewardTerms, case_of
from workers.trainer.stop_signals import StopFlag
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.functions.function_verifier import FunctionVerifier, RewardFunctionError
from workers.verifiers.judges.judge_verifier import JudgeUnusable, JudgeVerifier
from workers.verifiers.scoring.verdicts import Verdict

# Seconds to wait before each further try.
WAITS_S = (2.0, 5.0, 15.0, 30.0, 60.0)
Pair = tuple[str, Question]  # a response and its question


class VerifierFails(RuntimeError):
    """The verifier could not score enough in all tries."""


@dataclass
class JudgeTally:
    """What one judge did for one agent's rollouts of a step. cost: in the currency of its prices."""

    num_asked: int = 0
    cached: int = 0
    unscorable: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def add(self, verdict: Verdict) -> None:
        call = verdict.call
        self.unscorable += verdict.reward is None
        if call is None or call.is_cached:
            self.cached += call is not None
            return
        self.num_asked += 1
        self.seconds += call.seconds
        self.cost += call.cost


@dataclass(frozen=True)
class Scores:
    """Rewards (0 where unscorable) and the valid mask, (n, B, G) each; time-outs by agent.

    parts: where several rewards make the total, each of them by name, (n, B, G), the verifier's first; and what
    functions returned besides, NaN where they did not. judges: by name of the reward a tally of each agent. spent: by
    the same names all that the judge has cost in this attempt.
    """

    rewards: Tensor
    valid: Tensor
    timeouts: list[int]
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    judges: Mapping[str, Sequence[JudgeTally]] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def of_verifier(self) -> Tensor:
        """(n, B, G): the benchmark's own reward."""
        return self.parts.get(VERIFIER, self.rewards)

    @property
    def is_correct(self) -> Tensor:
        """(n, B, G): True where the reward is the highest possible one. Partial credit is not correct."""
        return (self.rewards >= REWARD_MAX) & self.valid


class Scorer:
    """Scores answers; if the verifier fails it waits, warns and tries again."""

    def __init__(
        self,
        verifier: AnyVerifier,
        stop: StopFlag,
        warn: Callable[[str], None],
        max_unscorable: float = 1.0,
        terms: RewardTerms | None = None,
        has_environment: bool = False,
        set_verifiers: Mapping[str, AnyVerifier] = MappingProxyType({}),
    ) -> None:
        """terms: the further rewards of training.  has_environment: whether rewards may come with the answers.

        set_verifiers: by name of the training sets whose verifier is another.
        """
        self.set_verifiers = set_verifiers
        self.verifier, self.stop, self.warn, self.max_unscorable = verifier, stop, warn, max_unscorable
        self.has_environment = has_environment
        self.terms = terms if terms and terms.terms else None

    def check_answers(self, questions: Sequence[Question]) -> None:
        """Warn of reference answers that no response could match. Errors: ValueError if that is all; Stopped."""
        doubts = [""] * len(questions)
        for verifier, places in self._by_verifier(questions):
            for place, doubt in zip(places, verifier.doubts([questions[at].answer for at in places]), strict=True):
                doubts[place] = doubt
            self.stop.check()
        doubtful = [(question, doubt) for question, doubt in zip(questions, doubts, strict=True) if doubt]
        if not doubtful:
            return
        question, doubt = doubtful[0]
        text = f"reference answers cannot be verified; the first is that of question {question.id} ({doubt})"
        if len(doubtful) == len(questions):
            raise ValueError(f"all {len(questions)} {text}: choose another answer_field or verifier")
        self.warn(f"{len(doubtful)} of {len(questions)} {text}")

    def paid(self, answer: Response | FinalAnswer) -> float | None:
        """The reward that an environment gave; None: the verifier decides, and no agent has a say in it."""
        return answer.reward if self.has_environment else None

    def score(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """A verdict on each pair. Errors: VerifierFails, Stopped."""
        return self._score_with_retries(pairs, lambda verdicts: "")

    def score_step(
        self,
        questions: Sequence[Question],
        generated: Sequence[GeneratedRollouts],
        per_prompt: int,
        *,
        is_extra: bool = False,
    ) -> Scores:
        """Score every text of a step once. Errors: VerifierFails, Stopped.

        is_extra: of a few further prompts, whose share of unscorable answers says nothing of the verifier.
        """
        places, pairs, responses = [], [], []
        for agent, rollouts in enumerate(generated):
            for prompt, (question, group) in enumerate(zip(questions, rollouts.responses, strict=True)):
                for number, response in enumerate(group):
                    places.append((agent, prompt, number))
                    pairs.append((response.text, question))
                    responses.append(response)

        def complaint(verdicts: Sequence[Verdict]) -> str:
            # Of all agents together: one agent with odd answers does not mean that the verifier fails.
            lost = [verdict.reason for verdict in verdicts if verdict.reward is None]
            if is_extra or len(lost) <= self.max_unscorable * len(verdicts):
                return ""
            (reason, _), *_ = Counter(lost).most_common(1)
            return f"{len(lost)} of {len(verdicts)} answers could not be scored ({reason})"

        # Where the environment gave a reward, nothing is verified.
        paid = [self.paid(response) for response in responses]
        verified = [pair for pair, reward in zip(pairs, paid, strict=True) if reward is None]
        own = iter(self._score_with_retries(verified, complaint))
        verdicts = [next(own) if reward is None else Verdict(reward, "environment") for reward in paid]
        by_name = {VERIFIER: verdicts} | self._score_terms(responses, [question for _, question in pairs])
        shape = (len(generated), len(questions), per_prompt)
        rewards, valid = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
        names = names_of_parts(by_name)  # of one reward alone nothing more is recorded
        parts = {name: torch.full(shape, torch.nan) for name in names} if len(names) > 1 else {}
        timeouts = [0] * len(generated)
        has_judge = {name: any(one.call for one in of_name) for name, of_name in by_name.items()}
        judges = {name: [JudgeTally() for _ in generated] for name in by_name if has_judge[name]}
        for place, *of_terms in zip(places, *by_name.values(), strict=True):
            of_response = dict(zip(by_name, of_terms, strict=True))
            for name, tallies in judges.items():
                tallies[place[0]].add(of_response[name])
            total = self._total(of_response)
            rewards[place] = total or 0.0
            valid[place] = total is not None
            timeouts[place[0]] += any(verdict.is_timeout for verdict in of_terms)
            for name, value in response_rewards(of_response).items() if parts and total is not None else ():
                parts[name][place] = value
        return Scores(rewards, valid, timeouts, parts, judges, self._spent())

    def _spent(self) -> dict[str, float]:
        """What each judge has cost in this attempt, by the name of its reward."""
        judges: dict[str, JudgeVerifier] = dict(self.terms.judges) if self.terms else {}
        spent = {name: judge.spent for name, judge in judges.items()}
        verifiers = {id(one): one for one in (self.verifier, *self.set_verifiers.values())}
        costs = [one.spent for one in verifiers.values() if isinstance(one, JudgeVerifier)]
        return spent | ({VERIFIER: sum(costs)} if costs else {})

    def _score_terms(self, responses: Sequence[Response], questions: Sequence[Question]) -> dict[str, list[Verdict]]:
        """Errors: VerifierFails."""
        if self.terms is None:
            return {}
        try:
            return self.terms.score(responses, questions)
        except VerifierError as error:
            raise VerifierFails(str(error)) from error

    def _total(self, verdicts: Mapping[str, Verdict]) -> float | None:
        """None if one of the rewards is missing."""
        rewards = {name: verdict.reward for name, verdict in verdicts.items()}
        if self.terms is None:
            return rewards[VERIFIER]
        numbers = {name: reward for name, reward in rewards.items() if reward is not None}
        return self.terms.spec.rewards.total(numbers) if len(numbers) == len(rewards) else None

    def _score_with_retries(
        self, pairs: Sequence[Pair], complaint: Callable[[Sequence[Verdict]], str]
    ) -> list[Verdict]:
        """Score until the verifier runs and `complaint` is empty; a pair with a reward is not scored again."""
        verdicts: list[Verdict | None] = [None] * len(pairs)
        for tries, wait_s in enumerate((*WAITS_S, None), start=1):
            still_open = [index for index, one in enumerate(verdicts) if one is None or one.reward is None]
            if tries > 1:
                for verifier in (self.verifier, *self.set_verifiers.values()):
                    verifier.forget_unscorable()
            try:
                for index, verdict in zip(still_open, self._ask([pairs[index] for index in still_open]), strict=True):
                    verdicts[index] = verdict
                problem = complaint([one for one in verdicts if one is not None])
            except (RewardFunctionError, JudgeUnusable) as error:  # waiting does not help
                raise VerifierFails(str(error)) from error
            except VerifierError as error:
                problem = str(error)
            if not problem:
                break
            if wait_s is None:
                raise VerifierFails(f"the verifier fails: {problem}; {tries} tries")
            self.warn(f"waiting: the verifier fails: {problem}; try {tries + 1} of {len(WAITS_S) + 1} in {wait_s:g} s")
            self._wait(wait_s)
        return [one for one in verdicts if one is not None]

    def _ask(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Errors: VerifierError."""
        verdicts: dict[int, Verdict] = {}
        for verifier, places in self._by_verifier([question for _, question in pairs]):
            verdicts |= zip(places, _verdicts(verifier, [pairs[place] for place in places]), strict=True)
        return [verdicts[place] for place in range(len(pairs))]

    def _by_verifier(self, questions: Sequence[Question]) -> Iterator[tuple[AnyVerifier, list[int]]]:
        """Each verifier with the places of the questions whose answers it verifies."""
        places: dict[str, list[int]] = {}
        for place, question in enumerate(questions):
            name = question.benchmark if question.benchmark in self.set_verifiers else ""
            places.setdefault(name, []).append(place)
        for name, of_set in places.items():
            yield self.set_verifiers.get(name, self.verifier), of_set

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (remaining_s := deadline - time.monotonic()) > 0:
            self.stop.check()
            # A short stall_timeout_s must not end this wait.
            heartbeat.send_heartbeat()
            time.sleep(min(0.2, remaining_s))
        self.stop.check()


def _verdicts(verifier: AnyVerifier, pairs: Sequence[Pair]) -> list[Verdict]:
    """Errors: VerifierError."""
    if isinstance(verifier, FunctionVerifier | JudgeVerifier):
        return verifier.score_cases([case_of(text, question) for text, question in pairs])
    return verifier.score([text for text, _ in pairs], [question.answer for _, question in pairs])


def response_rewards(verdicts: Mapping[str, Verdict]) -> dict[str, float]:
    """The rewards of one response by name, with what functions returned besides as `NAME.key`."""
    parts = {}
    for name, verdict in verdicts.items():
        if verdict.reward is not None:
            parts[name] = verdict.reward
        parts |= {f"{name}.{key}": value for key, value in verdict.parts.items()}
    return parts


def names_of_parts(by_name: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """Each reward and each further number of its function, in their order."""
    names = dict.fromkeys(by_name)
    for name, verdicts in by_name.items():
        names |= dict.fromkeys(f"{name}.{key}" for verdict in verdicts for key in verdict.parts)
    return [*names]
