"""Dynamic sampling: prompts of a step without a learning signal are replaced by further ones, up to a bound.

A prompt has no signal if by the run's own objective no learner has an advantage other than 0 on a valid rollout that it
may learn from: its own, and with shared rollouts also those of the sources that it trusts at the start of the step. So
for every learner all rewards, with the overlong penalty, are equal, or there are none; and with a shared baseline one
agent's success among others' failures is a signal, for all of them.

Which further prompts a step draws follows from the run's seed and the step alone, so a resumed run draws the same.
Source: DAPO, arXiv 2503.14476, Sec. 3.2; the bound and the prompts' order are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from workers.agents.messages import GeneratedRollouts
from workers.contract.advantages import REWARD_MAX
from workers.contract.spec.rewards import VERIFIER
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key, permutation
from workers.trainer.scoring import JudgeTally, Scores
from workers.trainer.step import overlong_penalties
from workers.trainer.trust import Trust


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
    """All prompts of a step with their rollouts by agent: first the batch, then the further ones.

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
        """With further prompts, none of which is kept yet."""
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
    """By prompt, see the head of this module."""
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
