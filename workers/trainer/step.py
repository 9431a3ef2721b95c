"""Steps 1 and 3 of Algorithm 1: the prompts and learning rate of a step, and each learner's mini-batches.

A learner's rows are its own rollouts, and those of the sources that it trusts at the start of the step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.agents.messages import GeneratedRollouts, LearnerRow
from workers.algorithms.base.spec import Objective
from workers.contract.advantages import REWARD_MAX
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key, permutation
from workers.trainer.scoring import Scores
from workers.trainer.trust import Trust


def batch_of_step(spec: RunSpec, step: int, questions: Sequence[Question]) -> list[Question]:
    """The prompts of a step. Each epoch has another order; questions that do not fill a batch are left out of it."""
    size = spec.training.train_batch_size
    epoch, place = divmod(step, len(questions) // size)
    order = permutation(len(questions), derived_key("prompts", spec.seed, epoch))
    return [questions[index] for index in order[place * size : (place + 1) * size]]


def learning_rate(spec: RunSpec, agent: int, step: int) -> float:
    """The learning rate of one step (0, 1, ...), the same for all its updates."""
    training = spec.training
    peak = spec.agents[agent].learning_rate or training.learning_rate
    if step < training.warmup_steps:
        return peak * (step + 1) / training.warmup_steps
    progress = (step - training.warmup_steps) / max(1, training.steps - training.warmup_steps)
    factors = {"constant": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}
    return peak * factors[training.lr_schedule]


@dataclass(frozen=True)
class LearnerRows:
    """The rollouts of a step (0, 1, ...) as rows of one learner."""

    spec: RunSpec
    step: int
    learner: int
    generated: Sequence[GeneratedRollouts]
    advantages: Tensor  # (n, B, G)
    valid: Tensor  # (n, B, G)
    ratio: Tensor  # (n, n)
    trusted: Sequence[bool] | None = None  # by source; None: every source is trusted

    def of_source(self, source: int) -> list[LearnerRow | None]:
        """One source's rollouts, by prompt and number; None if there is no reward."""
        _, num_prompts, per_prompt = self.advantages.shape
        advantages, valid = self.advantages[source].tolist(), self.valid[source].tolist()
        is_self = source == self.learner
        omega = self.spec.algorithm.omega(self.ratio, self.learner, source).item()

        def row(prompt: int, number: int) -> LearnerRow:
            response = None if is_self else self.generated[source].responses[prompt][number]
            return LearnerRow(prompt, source, number, is_self, advantages[prompt][number], omega, response)

        places = itertools.product(range(num_prompts), range(per_prompt))
        return [row(prompt, number) if valid[prompt][number] else None for prompt, number in places]

    def mini_batches(self) -> list[list[LearnerRow]]:
        """[self block, cross block], split into mini-batches m = 0, 1, ...; unscorable rollouts are left out."""
        spec = self.spec
        blocks = self.of_source(self.learner) * spec.training.num_iterations
        if spec.sharing:
            sources = sources_of_step(spec, self.step, self.learner, self.trusted)
            order = spec.sharing.cross_order
            is_mixed = order == "mixed" or (order == "auto" and len(sources) > 1)
            if is_mixed:  # an order that does not depend on the agents' places in the list
                sources.sort(key=lambda source: spec.agents[source].name)
            cross = [row for source in sources for row in self.of_source(source)]
            for iteration in range(spec.training.num_iterations):
                places: Sequence[int] = range(len(cross))
                if is_mixed:
                    seed = spec.agents[self.learner].stable_seed
                    places = permutation(len(cross), derived_key("cross", spec.seed, seed, self.step, iteration))
                blocks += [cross[place] for place in places]
        # The planned rows, which are also the loss's denominator, whatever is missing.
        size = spec.mini_batch_prompts * self.advantages.shape[2]
        return [[row for row in blocks[start : start + size] if row] for start in range(0, len(blocks), size)]

    def quarantined(self) -> list[LearnerRow]:
        """The rollouts of untrusted sources: the learner does not learn from them, but their alignment is measured."""
        if not self.spec.sharing:
            return []
        untrusted = [source for source, is_trusted in enumerate(self.trusted or ()) if not is_trusted]
        return [row for source in untrusted for row in self.of_source(source) if row]


def sources_of_step(spec: RunSpec, step: int, learner: int, trusted: Sequence[bool] | None = None) -> list[int]:
    """The trusted peers whose rollouts a learner trains on in a step, in the order of the list.

    With max_sources_per_learner they are drawn by step, learner and peer, whatever the agents' places in the list.
    """
    agents = range(len(spec.agents))
    peers = [source for source in agents if source != learner and (trusted is None or trusted[source])]
    seeds = [agent.stable_seed for agent in spec.agents]

    def draw(source: int) -> int:
        return derived_key("sources", spec.seed, seeds[learner], seeds[source], step)

    return sorted(sorted(peers, key=draw)[: spec.num_blocks - 1])


@dataclass(frozen=True)
class StepPlan:
    """The objective, and by learner: the trusted sources, the mini-batches, and the rows of untrusted sources.

    penalties: (n, B, G), what the overlong penalty adds to the verifier's rewards in the objective.
    """

    trusted_sources: Sequence[Sequence[bool]]
    objective: Objective
    mini_batches: Sequence[Sequence[Sequence[LearnerRow]]]
    quarantined: Sequence[Sequence[LearnerRow]]
    penalties: Tensor


def overlong_penalties(spec: RunSpec, generated: Sequence[GeneratedRollouts], valid: Tensor) -> Tensor:
    """The penalty of each rollout, by its source's own count of tokens; 0 where there is none. valid: (n, B, G)."""
    penalties = torch.zeros(valid.shape)  # (n, B, G)
    for agent, prompt, number in valid.nonzero().tolist() if spec.overlong.cache else ():
        penalties[agent, prompt, number] = spec.overlong.of(generated[agent].responses[prompt][number].num_tokens)
    return penalties


def plan_step(
    spec: RunSpec,
    step: int,
    generated: Sequence[GeneratedRollouts],
    scores: Scores,
    ratio: Tensor,
    trust: Trust,
) -> StepPlan:
    """step: 0, 1, ...  ratio: omega, (n, n)."""
    trusted = [trust.trusted_sources(learner) for learner in range(len(spec.agents))]
    penalties = overlong_penalties(spec, generated, scores.valid)
    rewards = scores.rewards + penalties  # (n, B, G)
    objective = spec.algorithm.objective(rewards, scores.valid, ratio, REWARD_MAX, torch.tensor(trusted))
    learners = [
        LearnerRows(spec, step, learner, generated, advantages, scores.valid, ratio, trusted[learner])
        for learner, advantages in enumerate(objective.advantages)
    ]
    return StepPlan(
        trusted,
        objective,
        [rows.mini_batches() for rows in learners],
        [rows.quarantined() for rows in learners],
        penalties,
    )
