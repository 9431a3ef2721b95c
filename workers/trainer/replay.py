"""Replay of rescues: in later steps a learner trains again on peers' correct answers to prompts that it did not solve.

A rescue is a peer's correct answer with a positive advantage, in a step in which the learner trained on that peer and
none of its own scored answers to the prompt was correct. Of each prompt a learner keeps one, drawn by a derived key,
for `replay_steps` further steps, but not beyond the step in which the prompt is sampled again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workers.agents.messages import LearnerRow, Response, UpdateReport
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key
from workers.trainer.scoring import Scores


@dataclass(frozen=True)
class Rescue:
    """A peer's rollout of step 0, 1, ..., with the learner's advantage and omega of that step."""

    step: int
    question: Question
    source: int
    sample: int
    response: Response
    reward: float
    advantage: float
    omega: float

    def row(self, prompt: int) -> LearnerRow:
        """prompt: its number, after those of the step's prompts."""
        return LearnerRow(
            prompt, self.source, self.sample, False, self.advantage, self.omega, self.response, self.question
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Rescue:
        question, response = Question(**state["question"]), Response.from_state(state["response"])
        return cls(**{**state, "question": question, "response": response})


class Replay:
    """The rescues of each learner, by question id. Without `replay_steps`, there are none."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.num_steps = spec.sharing.replay_steps if spec.sharing else 0
        self.rescues: list[dict[str, Rescue]] = [{} for _ in spec.agents]  # by learner

    @property
    def is_on(self) -> bool:
        return self.num_steps > 0

    def begin_step(self, step: int, questions: Sequence[Question]) -> None:
        """Forget the rescues that are too old, and those of prompts that are sampled again. step: 0, 1, ..."""
        ids = {question.id for question in questions}
        for learner, rescues in enumerate(self.rescues):
            self.rescues[learner] = {
                key: one for key, one in rescues.items() if step - one.step <= self.num_steps and key not in ids
            }

    def of_learner(self, learner: int, trusted: Sequence[bool]) -> list[Rescue]:
        """What a learner trains on again in a step, whatever the agents' places in the list. trusted: by source."""
        rescues = (one for one in self.rescues[learner].values() if trusted[one.source])
        return sorted(rescues, key=lambda one: (one.step, one.question.id))

    def end_step(
        self,
        step: int,
        questions: Sequence[Question],
        scores: Scores,
        trusted_sources: Sequence[Sequence[bool]],
        mini_batches: Sequence[Sequence[Sequence[LearnerRow]]],
        reports: Sequence[UpdateReport],
    ) -> None:
        """Add the rescues of a step; forget those of sources that are not trusted, whose rewards may be incorrect.

        trusted_sources, mini_batches, reports: by learner.
        """
        if not self.is_on:
            return
        for learner, trusted in enumerate(trusted_sources):
            rescues = {key: one for key, one in self.rescues[learner].items() if trusted[one.source]}
            keys: dict[str, int] = {}
            for row in _rescuing(learner, scores, mini_batches[learner], reports[learner]):
                question, response = questions[row.prompt], row.response
                assert response is not None
                reward = scores.rewards[row.source, row.prompt, row.sample].item()
                one = Rescue(step, question, row.source, row.sample, response, reward, row.advantage, row.omega)
                key = self._key(learner, one)
                if key < keys.get(question.id, 2**64):
                    keys[question.id], rescues[question.id] = key, one
            self.rescues[learner] = rescues

    def _key(self, learner: int, one: Rescue) -> int:
        seeds = [self.spec.agents[agent].stable_seed for agent in (learner, one.source)]
        return derived_key("replay", self.spec.seed, *seeds, one.step, one.question.id, one.sample)

    def state_dict(self) -> list[list[dict[str, Any]]]:
        """What resuming needs, as JSON values."""
        return [[asdict(one) for one in rescues.values()] for rescues in self.rescues]

    def load_state_dict(self, state: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        self.rescues = [{one["question"]["id"]: Rescue.from_state(one) for one in rescues} for rescues in state]


def _rescuing(
    learner: int, scores: Scores, mini_batches: Sequence[Sequence[LearnerRow]], report: UpdateReport
) -> Iterator[LearnerRow]:
    """The rows of a learner's step that are rescues and were not dropped, once for each pass."""
    is_correct = scores.is_correct  # (n, B, G)
    unsolved = (scores.valid[learner].any(dim=1) & ~is_correct[learner].any(dim=1)).tolist()  # (B,)
    for rows, results in zip(mini_batches, report.results, strict=True):
        for row, result in zip(rows, results, strict=True):
            is_shared = not row.is_self and row.question is None
            if (
                is_shared
                and unsolved[row.prompt]
                and is_correct[row.source, row.prompt, row.sample]
                and row.advantage > 0
                and result.num_tokens
            ):
                yield row
