"""Step 1 of Algorithm 1: which questions a step asks, and which replace those without a learning signal.

Of one training set each epoch has another order (`step.batch_of_step`). Of several sets every prompt is of the set that
is furthest behind its share, so that shares hold in any stretch of a run; within a set, epochs follow each other.

Dynamic sampling replaces prompts without a signal by further ones, up to a bound. A prompt has no signal if by the
run's own objective no learner has an advantage other than 0 on a valid rollout that it may learn from: its own, and
with shared rollouts also those of the sources that it trusts at the start of the step. So for every learner all
rewards, with the overlong penalty, are equal, or there are none; and with a shared baseline one agent's success among
others' failures is a signal, for all of them.
Source: DAPO, arXiv 2503.14476, Sec. 3.2; the bound and the prompts' order are ours.

All of it follows from the run's seed, the step and what a checkpoint stores, so a resumed run draws the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from workers.agents.messages import GeneratedRollouts
from workers.contract.advantages import REWARD_MAX
from workers.contract.spec.rewards import VERIFIER
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.questions.generated import FreshQuestions
from workers.randomness import derived_key, permutation
from workers.trainer.scoring import JudgeTally, Scores
from workers.trainer.step import batch_of_step, overlong_penalties
from workers.trainer.trust import Trust


@dataclass
class SetSampler:
    """The questions of one training set, in epochs of different orders, and of a generator of different questions.

    key: parts of the key of an epoch's order, before its number.  position: in the order of the epoch.
    passed: indices of questions that were in the batch already when their turn came; their turn is in the next batch.
    """

    fresh: FreshQuestions
    weight: float
    key: tuple[int | str, ...]
    count: int = 0
    epoch: int = 0
    position: int = 0
    passed: list[int] = field(default_factory=list)
    _order: list[int] = field(default_factory=list)
    _order_of: int = -1  # the epoch

    @property
    def questions(self) -> Sequence[Question]:
        """Those of the epoch."""
        return self.fresh.of_pass(self.epoch)

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
    """The prompts of a run's steps. sets: the training sets, the run's own first."""

    def __init__(self, spec: RunSpec, sets: Sequence[FreshQuestions]) -> None:
        self.spec = spec
        names = [one.benchmark for one in spec.training.benchmarks]
        keys = [("prompts", spec.seed), *(("prompts", spec.seed, name) for name in names)]
        triples = zip(sets, spec.training_shares, keys, strict=True)
        self._draws = [SetSampler(fresh, share, key) for fresh, share, key in triples]
        self._by_name = dict(zip((spec.data.benchmark, *names), self._draws, strict=True))
        # By step: drawn, and not trained yet. A run that stops meanwhile asks them again.
        self._batches: dict[int, list[Question]] = {}

    @property
    def has_state(self) -> bool:
        """Whether what a step asks depends on the steps before."""
        return len(self._draws) > 1

    def batch(self, step: int) -> list[Question]:
        """The prompts of step 0, 1, ...; steps are drawn in their order."""
        if not self.has_state:
            return batch_of_step(self.spec, step, self._questions_of(step))
        if step not in self._batches:
            self._batches[step] = self._drawn()
        return self._batches[step]

    def _questions_of(self, step: int) -> Sequence[Question]:
        """Those of a step's epoch, of a run with one training set."""
        fresh = self._draws[0].fresh
        return fresh.of_pass(step // (len(fresh.of_pass(0)) // self.spec.training.train_batch_size))

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
            return extra_questions(self.spec, step, batch, self._questions_of(step))
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
        for name, draw in self._by_name.items():
            draw.load_state_dict(state["sets"][name])
        epochs = [(draw.fresh, number) for draw in self._draws for number in (max(0, draw.epoch - 1), draw.epoch)]
        by_id = {question.id: question for fresh, number in epochs for question in fresh.of_pass(number)}
        self._batches = {step: [by_id[one] for one in ids] for step, ids in state["batches"]}


def _index_of(target: float, weights: Sequence[float]) -> int:
    """The first index up to which the weights add up to more than the target; the last with a weight if none does."""
    total = 0.0
    for index, weight in enumerate(weights):
        total += weight
        if target < total:
            return index
    return max(index for index, weight in enumerate(weights) if weight)


def extra_questions(spec: RunSpec, step: int, batch: Sequence[Question], train: Sequence[Question]) -> list[Question]:
    """The prompts that a step may draw in addition, in their order: none of its batch, each at most once."""
    most = spec.rollout.max_extra_prompts
    if not most:
        return []
    ids = {question.id for question in batch}
    order = permutation(len(train), derived_key("extra prompts", spec.seed, step))
    return list(islice((train[index] for index in order if train[index].id not in ids), most))


@dataclass(frozen=True)
class SampledStep:
    """The prompts of a step with their rollouts by agent: first the batch, then the further ones.

    trained_places: of the prompts that are trained, by their place in the batch.
    num_uninformative: of the batch as it was drawn.
    """

    questions: Sequence[Question]
    generated: Sequence[GeneratedRollouts]
    scores: Scores
    trained_places: Sequence[int]
    num_uninformative: int = 0

    @property
    def num_extra(self) -> int:
        return len(self.questions) - len(self.trained_places)

    @property
    def num_replaced(self) -> int:
        return sum(prompt >= len(self.trained_places) for prompt in self.trained_places)

    def with_round(
        self, questions: Sequence[Question], generated: Sequence[GeneratedRollouts], scores: Scores
    ) -> SampledStep:
        """This step with further prompts, none of which is kept yet."""
        both = [joined(*pair) for pair in zip(self.generated, generated, strict=True)]
        return replace(
            self, questions=[*self.questions, *questions], generated=both, scores=joined_scores(self.scores, scores)
        )

    def trained(self) -> SampledStep:
        """The kept prompts alone, whose rollouts the learners train on."""
        places = list(self.trained_places)
        if places == list(range(len(self.questions))):
            return self
        scores = replace(
            self.scores,
            rewards=self.scores.rewards[:, places],
            valid=self.scores.valid[:, places],
            parts={name: values[:, places] for name, values in self.scores.parts.items()},
        )
        generated = [replace(own, responses=[own.responses[prompt] for prompt in places]) for own in self.generated]
        return SampledStep([self.questions[prompt] for prompt in places], generated, scores, range(len(places)))


def has_no_signal(spec: RunSpec, generated: Sequence[GeneratedRollouts], scores: Scores, trust: Trust) -> list[bool]:
    """Whether each prompt has no signal, as the head of this file says."""
    num_agents = len(spec.agents)
    rewards = scores.rewards + overlong_penalties(spec, generated, scores.valid)  # (n, B, G)
    trusted = torch.tensor([trust.trusted_sources(learner) for learner in range(num_agents)])  # (n, n)
    # Omega changes the size of advantages, and all of a prompt's to 0 never: one baseline cannot equal unequal rewards.
    omega = torch.ones(num_agents, num_agents, dtype=torch.float64)
    objective = spec.algorithm.objective(rewards, scores.valid, omega, REWARD_MAX, trusted)
    used = trusted if spec.sharing else torch.eye(num_agents, dtype=torch.bool)  # (learner, source)
    advantages = torch.stack(list(objective.advantages))  # (learner, source, B, G)
    has_signal = (advantages != 0) & scores.valid & used[:, :, None, None]
    return [not is_any for is_any in has_signal.any(dim=3).any(dim=1).any(dim=0).tolist()]


@dataclass(frozen=True)
class DynamicSampling:
    """Fills a step's batch. sample: rollouts and scores of further prompts; None if an agent cannot deliver them."""

    spec: RunSpec
    trust: Trust
    sample: Callable[[Sequence[Question]], tuple[Sequence[GeneratedRollouts], Scores] | None]

    def fill(self, drawn: SampledStep, extra: Sequence[Question]) -> SampledStep:
        """Replace the prompts without a signal by those of `extra` that have one, as long as there are both.

        A round samples as many further prompts as are still to be replaced. What finds no replacement stays.
        """
        uninformative = has_no_signal(self.spec, drawn.generated, drawn.scores, self.trust)
        to_replace = [place for place, is_empty in enumerate(uninformative) if is_empty]
        step, places = replace(drawn, num_uninformative=len(to_replace)), list(drawn.trained_places)
        if any(rollouts.is_missing for rollouts in drawn.generated):
            return step
        while to_replace and extra:
            questions, extra = extra[: len(to_replace)], extra[len(to_replace) :]
            sampled = self.sample(questions)
            if sampled is None:
                break
            before, step = len(step.questions), step.with_round(questions, *sampled)
            for prompt, is_empty in enumerate(has_no_signal(self.spec, *sampled, self.trust), start=before):
                if not is_empty:
                    places[to_replace.pop(0)] = prompt
        return replace(step, trained_places=places)


def joined(first: GeneratedRollouts, then: GeneratedRollouts) -> GeneratedRollouts:
    """The rollouts of one agent on further prompts after those of the first."""
    entropy = (first.entropy[0] + then.entropy[0], first.entropy[1] + then.entropy[1])
    return replace(
        first, responses=[*first.responses, *then.responses], entropy=entropy, notes=(*first.notes, *then.notes)
    )


def joined_scores(first: Scores, then: Scores) -> Scores:
    """The scores of further prompts after those of the first; what judges spent is the attempt's, so the newest."""
    names = dict.fromkeys([*first.parts, *then.parts])
    parts = {name: torch.cat([_part(scores, name) for scores in (first, then)], dim=1) for name in names}
    judges = {
        name: [_added(*pair) for pair in zip(first.judges[name], then.judges[name], strict=True)]
        for name in first.judges.keys() & then.judges.keys()
    }
    return Scores(
        torch.cat([first.rewards, then.rewards], dim=1),
        torch.cat([first.valid, then.valid], dim=1),
        [sum(pair) for pair in zip(first.timeouts, then.timeouts, strict=True)],
        parts,
        {**first.judges, **then.judges, **judges},
        {**first.spent, **then.spent},
    )


def _part(scores: Scores, name: str) -> Tensor:
    """(n, B, G); NaN where a function did not return this number, or there is no reward."""
    missing = torch.full_like(scores.rewards, torch.nan)
    if name == VERIFIER:  # alone it is the total
        missing = scores.rewards.where(scores.valid, torch.nan)
    return scores.parts.get(name, missing)


def _added(first: JudgeTally, then: JudgeTally) -> JudgeTally:
    return JudgeTally(
        first.num_asked + then.num_asked,
        first.cached + then.cached,
        first.unscorable + then.unscorable,
        first.seconds + then.seconds,
        first.cost + then.cost,
    )
