"""Steps 1 and 3 of Algorithm 1: the prompts and learning rate of a step, and each learner's rows in mini-batches.

A learner's rows are its own rollouts and those of the sources that it trusts at the start of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.agents.messages import GeneratedRollouts, LearnerRow
from workers.agents.objective import Objective, objective_of
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key, permutation
from workers.trainer.scoring import Scores
from workers.trainer.trust import Trust
from workers.verifiers.service import REWARD_MAX


def batch_of_step(spec: RunSpec, step: int, questions: Sequence[Question]) -> list[Question]:
    """The prompts of a step: epochs in an order of their own; what does not fill a batch waits for the next epoch."""
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


def build_mini_batches(
    spec: RunSpec,
    step: int,
    learner: int,
    generated: Sequence[GeneratedRollouts],
    advantages: Tensor,
    valid: Tensor,
    ratio: Tensor,
    trusted: Sequence[bool] | None = None,
) -> list[list[LearnerRow]]:
    """[self block, cross block] of one learner, split into mini-batches m = 0, 1, ...; unscorable rollouts left out.

    advantages, valid: (n, B, G).  ratio: (n, n).  trusted: by source; the others have no place in the cross block.
    """
    per_prompt = advantages.shape[2]

    def rows_of(source: int) -> list[LearnerRow | None]:
        return rows_from(spec, learner, source, generated, advantages, valid, ratio)

    blocks = rows_of(learner) * spec.training.num_iterations
    if spec.algorithm.shares_rollouts:
        sources = chosen_sources(spec, step, learner, trusted)
        order = spec.algorithm.cross_order
        is_mixed = order == "mixed" or (order == "auto" and len(sources) > 1)
        if is_mixed:  # an order that does not depend on the agents' places in the list
            sources.sort(key=lambda source: spec.agents[source].name)
        cross = [row for source in sources for row in rows_of(source)]
        for iteration in range(spec.training.num_iterations):
            if is_mixed:
                seed = spec.agents[learner].stable_seed
                key = derived_key("cross", spec.seed, seed, step, iteration)
                blocks += [cross[index] for index in permutation(len(cross), key)]
            else:
                blocks += cross
    size = spec.mini_batch_prompts * per_prompt  # planned rows: also the loss denominator, whatever is missing
    return [[row for row in blocks[start : start + size] if row] for start in range(0, len(blocks), size)]


def rows_from(
    spec: RunSpec,
    learner: int,
    source: int,
    generated: Sequence[GeneratedRollouts],
    advantages: Tensor,
    valid: Tensor,
    ratio: Tensor,
) -> list[LearnerRow | None]:
    """The rollouts of one source as rows of one learner, by prompt and number; None where there is no reward.

    advantages, valid: (n, B, G).  ratio: (n, n).
    """
    _, num_prompts, per_prompt = advantages.shape
    values, scored = advantages[source].tolist(), valid[source].tolist()
    is_modulated = spec.algorithm.name == "hacpo" and spec.algorithm.modulate_gradient
    omega = 1.0 if source == learner or not is_modulated else ratio[source, learner].item()
    return [
        LearnerRow(
            prompt,
            source,
            number,
            source == learner,
            values[prompt][number],
            omega,
            None if source == learner else generated[source].responses[prompt][number],
        )
        if scored[prompt][number]
        else None
        for prompt in range(num_prompts)
        for number in range(per_prompt)
    ]


def quarantined_rows(
    spec: RunSpec,
    learner: int,
    generated: Sequence[GeneratedRollouts],
    advantages: Tensor,
    valid: Tensor,
    ratio: Tensor,
    trusted: Sequence[bool],
) -> list[LearnerRow]:
    """The rollouts of the sources that a learner does not trust: they teach it nothing, and are watched."""
    if not spec.algorithm.shares_rollouts:
        return []
    sources = [source for source in range(len(trusted)) if not trusted[source]]
    return [
        row
        for source in sources
        for row in rows_from(spec, learner, source, generated, advantages, valid, ratio)
        if row
    ]


def chosen_sources(spec: RunSpec, step: int, learner: int, trusted: Sequence[bool] | None = None) -> list[int]:
    """The trusted peers whose rollouts a learner trains on in a step, in the order of the list.

    With max_sources_per_learner they are drawn by step, learner and peer, whatever the agents' places in the list.
    """
    everybody = range(len(spec.agents))
    peers = [source for source in everybody if source != learner and (trusted is None or trusted[source])]
    seeds = [agent.stable_seed for agent in spec.agents]

    def draw(source: int) -> int:
        return derived_key("sources", spec.seed, seeds[learner], seeds[source], step)

    return sorted(sorted(peers, key=draw)[: spec.num_blocks - 1])


@dataclass(frozen=True)
class StepPlan:
    """By learner: whom it trusts, its judgement, its mini-batches, and the rollouts of those that it does not trust."""

    trusted_sources: list[list[bool]]
    objective: Objective
    plans: list[list[list[LearnerRow]]]
    quarantined: list[list[LearnerRow]]


def plan_step(
    spec: RunSpec, step: int, generated: Sequence[GeneratedRollouts], scores: Scores, ratio: Tensor, trust: Trust
) -> StepPlan:
    """step: 0, 1, ...  ratio: (n, n), omega."""
    trusted = [trust.trusted_sources(learner) for learner in range(len(spec.agents))]
    objective = objective_of(spec.algorithm, scores.rewards, scores.valid, ratio, REWARD_MAX, torch.tensor(trusted))
    plans, quarantined = [], []
    for learner, advantages in enumerate(objective.advantages):
        view = (learner, generated, advantages, scores.valid, ratio, trusted[learner])
        plans.append(build_mini_batches(spec, step, *view))
        quarantined.append(quarantined_rows(spec, *view))
    return StepPlan(trusted, objective, plans, quarantined)
