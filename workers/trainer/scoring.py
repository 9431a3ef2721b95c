"""Step 2 of Algorithm 1: rewards of all rollouts by the verifier, and a pause if the verifier fails.

Too many unscorable answers mean that the verifier fails. Learning from the few that remain would drive omega to its
clamp, so the run waits, tries again, and at last pauses with the reason.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers import heartbeat
from workers.agents.messages import GeneratedRollouts
from workers.contract.advantages import REWARD_MAX
from workers.questions.dataset import Question
from workers.trainer.stop_signals import StopFlag
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.service import Verifier
from workers.verifiers.verdicts import Verdict

# Seconds to wait before each further try.
WAITS_S = (2.0, 5.0, 15.0, 30.0, 60.0)
Pair = tuple[str, str]  # completion, reference answer


class VerifierFails(RuntimeError):
    """The verifier could not score enough in all tries."""


@dataclass(frozen=True)
class Scores:
    """Rewards (0 where unscorable) and the valid mask, (n, B, G) each; time-outs by agent."""

    rewards: Tensor
    valid: Tensor
    timeouts: list[int]

    @property
    def is_correct(self) -> Tensor:
        """(n, B, G): True where the reward is the highest possible one. Partial credit is not correct."""
        return (self.rewards >= REWARD_MAX) & self.valid


class Scorer:
    """Scores answers; if the verifier fails it waits, warns and tries again."""

    def __init__(
        self, verifier: Verifier, stop: StopFlag, warn: Callable[[str], None], max_unscorable: float = 1.0
    ) -> None:
        self.verifier, self.stop, self.warn, self.max_unscorable = verifier, stop, warn, max_unscorable

    def check_answers(self, questions: Sequence[Question]) -> None:
        """Warn of reference answers that no response could match. Errors: ValueError if that is all; Stopped."""
        doubts = self.verifier.doubts([question.answer for question in questions])
        self.stop.check()
        doubtful = [(question, doubt) for question, doubt in zip(questions, doubts, strict=True) if doubt]
        if not doubtful:
            return
        question, doubt = doubtful[0]
        text = f"reference answers cannot be verified; the first is that of question {question.id} ({doubt})"
        if len(doubtful) == len(questions):
            raise ValueError(f"all {len(questions)} {text}: choose another answer_field or verifier")
        self.warn(f"{len(doubtful)} of {len(questions)} {text}")

    def score(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """A verdict on each pair. Errors: VerifierFails, Stopped."""
        return self._score_with_retries(pairs, lambda verdicts: "")

    def score_step(
        self, questions: Sequence[Question], generated: Sequence[GeneratedRollouts], per_prompt: int
    ) -> Scores:
        """Score every text of a step once. Errors: VerifierFails, Stopped."""
        places, pairs = [], []
        for agent, rollouts in enumerate(generated):
            for prompt, (question, group) in enumerate(zip(questions, rollouts.responses, strict=True)):
                for number, response in enumerate(group):
                    places.append((agent, prompt, number))
                    pairs.append((response.text, question.answer))

        def complaint(verdicts: Sequence[Verdict]) -> str:
            # Of all agents together: one agent with odd answers does not mean that the verifier fails.
            lost = [verdict.reason for verdict in verdicts if verdict.reward is None]
            if len(lost) <= self.max_unscorable * len(verdicts):
                return ""
            (reason, _), *_ = Counter(lost).most_common(1)
            return f"{len(lost)} of {len(verdicts)} answers could not be scored ({reason})"

        verdicts = self._score_with_retries(pairs, complaint)
        shape = (len(generated), len(questions), per_prompt)
        rewards, valid = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
        timeouts = [0] * len(generated)
        for place, verdict in zip(places, verdicts, strict=True):
            rewards[place] = verdict.reward or 0.0
            valid[place] = verdict.reward is not None
            timeouts[place[0]] += verdict.is_timeout
        return Scores(rewards, valid, timeouts)

    def _score_with_retries(
        self, pairs: Sequence[Pair], complaint: Callable[[Sequence[Verdict]], str]
    ) -> list[Verdict]:
        """All verdicts, once the verifier runs and `complaint` is empty; a pair with a reward is not scored again."""
        verdicts: list[Verdict | None] = [None] * len(pairs)
        for tries, wait_s in enumerate((*WAITS_S, None), start=1):
            still_open = [index for index, one in enumerate(verdicts) if one is None or one.reward is None]
            if tries > 1:
                self.verifier.forget_unscorable()
            try:
                batch = [pairs[index] for index in still_open]
                answers = self.verifier.score([text for text, _ in batch], [answer for _, answer in batch])
                for index, verdict in zip(still_open, answers, strict=True):
                    verdicts[index] = verdict
                problem = complaint([one for one in verdicts if one is not None])
            except VerifierError as error:
                problem = str(error)
            if not problem:
                break
            if wait_s is None:
                raise VerifierFails(f"the verifier fails: {problem}; {tries} tries")
            self.warn(f"waiting: the verifier fails: {problem}; try {tries + 1} of {len(WAITS_S) + 1} in {wait_s:g} s")
            self._wait(wait_s)
        return [one for one in verdicts if one is not None]

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (remaining_s := deadline - time.monotonic()) > 0:
            self.stop.check()
            # A short stall_timeout_s must not end this wait.
            heartbeat.send_heartbeat()
            time.sleep(min(0.2, remaining_s))
        self.stop.check()
