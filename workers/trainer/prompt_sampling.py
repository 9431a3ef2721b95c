"""Step 1 of Algorithm 1: which questions a step asks.

Of one training set each epoch has another order (`step.batch_of_step`). Of several sets every prompt is of the set that
is furthest behind its share, so that shares hold in any stretch of a run; within a set, epochs follow each other.

All of it follows from the run's seed, the step and what a checkpoint stores, so a resumed run draws the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key, permutation
from workers.trainer.resampling import extra_questions
from workers.trainer.step import batch_of_step


@dataclass
class SetSampler:
    """The questions of one training set, in epochs of different orders.

    key: parts of the key of an epoch's order, before its number.  position: in the order of the epoch.
    passed: indices of questions that were in the batch already when their turn came; their turn is in the next batch.
    """

    questions: Sequence[Question]
    weight: float
    key: tuple[int | str, ...]
    count: int = 0
    epoch: int = 0
    position: int = 0
    passed: list[int] = field(default_factory=list)
    _order: list[int] = field(default_factory=list)
    _order_of: int = -1  # the epoch

    def take(self, batch: Mapping[str, Question]) -> Question:
        """The next question that is not in the batch; the set must have one."""
        self.count += 1
        for index in list(self.passed):
            question = self.questions[index]
            if question.id not in batch:
                self.passed.remove(index)
                return question
        while True:
            if self.position == len(self.questions):
                self.epoch, self.position = self.epoch + 1, 0
            if self._order_of != self.epoch:
                self._order, self._order_of = (
                    permutation(len(self.questions), derived_key(*self.key, self.epoch)),
                    self.epoch,
                )
            index = self._order[self.position]
            self.position += 1
            question = self.questions[index]
            if question.id not in batch:
                return question
            self.passed += [index] if index not in self.passed else []

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "epoch": self.epoch, "position": self.position, "passed": list(self.passed)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count, self.epoch, self.position = state["count"], state["epoch"], state["position"]
        self.passed = list(state["passed"])


class PromptSampler:
    """The prompts of a run's steps. sets: the questions of each training set, the run's own first."""

    def __init__(self, spec: RunSpec, sets: Sequence[Sequence[Question]]) -> None:
        self.spec, self.sets = spec, sets
        names = [one.benchmark for one in spec.training.benchmarks]
        keys = [("prompts", spec.seed), *(("prompts", spec.seed, name) for name in names)]
        triples = zip(sets, spec.training_shares, keys, strict=True)
        self._draws = [SetSampler(questions, share, key) for questions, share, key in triples]
        self._by_name = dict(zip((spec.data.benchmark, *names), self._draws, strict=True))
        # By step: drawn, and not trained yet. A run that stops meanwhile asks them again.
        self._batches: dict[int, list[Question]] = {}

    @property
    def has_state(self) -> bool:
        """Whether what a step asks depends on the steps before."""
        return len(self.sets) > 1

    def batch(self, step: int) -> list[Question]:
        """The prompts of step 0, 1, ...; steps are drawn in their order."""
        if not self.has_state:
            return batch_of_step(self.spec, step, self.sets[0])
        if step not in self._batches:
            self._batches[step] = self._drawn()
        return self._batches[step]

    def _drawn(self) -> list[Question]:
        batch: dict[str, Question] = {}
        counts = [0] * len(self._draws)
        for _ in range(self.spec.training.train_batch_size):
            total = sum(draw.count for draw in self._draws) + 1
            behind = {
                index: draw.weight * total - draw.count
                for index, draw in enumerate(self._draws)
                if counts[index] < len(draw.questions)
            }
            set_index = max(behind, key=lambda index: (behind[index], -index))
            counts[set_index] += 1
            question = self._draws[set_index].take(batch)
            batch[question.id] = question
        return list(batch.values())

    def substitutes(self, step: int, batch: Sequence[Question]) -> list[Question]:
        """What dynamic sampling may ask in a step besides its batch, in its order."""
        most = self.spec.rollout.max_extra_prompts
        if not self.has_state or not most:
            return extra_questions(self.spec, step, batch, self.sets[0])
        left_out = {question.id for question in batch}
        waiting = [self._others(draw, step, left_out) for draw in self._draws]
        candidates: list[Question | None] = [next(one, None) for one in waiting]
        extra: list[Question] = []
        while len(extra) < most and any(candidates):
            weights = [draw.weight if one else 0.0 for draw, one in zip(self._draws, candidates, strict=True)]
            target = derived_key("extra set", self.spec.seed, step, len(extra)) / 2**64 * sum(weights)
            set_index = _index_of(target, weights)
            question = candidates[set_index]
            assert question is not None
            extra.append(question)
            candidates[set_index] = next(waiting[set_index], None)
        return extra

    def _others(self, draw: SetSampler, step: int, left_out: set[str]) -> Iterator[Question]:
        key = derived_key("extra prompts", *draw.key[1:], step)
        order = permutation(len(draw.questions), key)
        return (draw.questions[index] for index in order if draw.questions[index].id not in left_out)

    def end_step(self, step: int) -> None:
        """A step was trained."""
        self._batches.pop(step, None)

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs, as JSON values."""
        return {
            "sets": {name: draw.state_dict() for name, draw in self._by_name.items()},
            "batches": [[step, [question.id for question in batch]] for step, batch in self._batches.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """state: of a run with the same training sets and questions."""
        by_id = {question.id: question for questions in self.sets for question in questions}
        for name, draw in self._by_name.items():
            draw.load_state_dict(state["sets"][name])
        self._batches = {step: [by_id[one] for one in ids] for step, ids in state["batches"]}


def _index_of(target: float, weights: Sequence[float]) -> int:
    """The first index up to which the weights add up to more than the target; the last with a weight if none does."""
    total = 0.0
    for index, weight in enumerate(weights):
        total += weight
        if target < total:
            return index
    return max(index for index, weight in enumerate(weights) if weight)
