"""Which rule a run follows: the advantages of every learner, and the loss of a micro-batch, by the algorithm's name.

Options that name an ablation or another paper's choice act here; the formulas stand in workers/algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from workers.algorithms import grpo, gspo, hacpo, naive
from workers.spec_algorithm import AlgorithmSpec


@dataclass(frozen=True)
class Judgement:
    """By learner: advantages (n, B, G), baselines (B,), and prompts whose baseline the guard replaced (B,) bool."""

    advantages: list[Tensor]
    baselines: list[Tensor]
    guarded: list[Tensor]


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one learner. logps, mask, ref_logps, old_logps: (b, T); the rest (b,).

    old_mean_logp is the source's, or what stands for it; old_logps (own rollouts only) the same by token.
    """

    logps: Tensor
    mask: Tensor
    old_mean_logp: Tensor
    advantages: Tensor
    is_self: Tensor
    omega: Tensor
    source_lengths: Tensor
    ref_logps: Tensor | None = None
    old_logps: Tensor | None = None


def judge(
    algorithm: AlgorithmSpec, rewards: Tensor, valid: Tensor, ratio: Tensor, reward_max: float = 1.0
) -> Judgement:
    """Every learner's view of a step. rewards, valid: (n, B, G).  ratio: (n, n), omega."""
    n, scale = len(rewards), algorithm.scale_rewards
    advantages, baselines, guarded = [], [], []
    weights = ratio if algorithm.advantage == "capability" else torch.ones_like(ratio)  # -adv: a plain joint mean
    for learner in range(n):
        rules = None
        if not algorithm.shares_rollouts:
            found = torch.zeros_like(rewards)
            found[learner], baseline = gspo.advantages(rewards[learner], valid=valid[learner], scale_rewards=scale)
        elif algorithm.name == "hacpo":
            rules = hacpo.baselines(rewards, weights, learner, valid=valid, reward_max=reward_max)
            found, baseline = hacpo.advantages(
                rewards, weights, learner, valid=valid, scale_rewards=scale, baseline=rules.value
            )
        else:
            found, baseline = naive.advantages(rewards, valid=valid, scale_rewards=scale)
        advantages.append(found)
        baselines.append(baseline)
        guarded.append(torch.zeros_like(baseline, dtype=torch.bool) if rules is None else rules.guarded)
    if algorithm.shares_rollouts and algorithm.cross_advantage == "source":
        # Eq. (10) read literally: behind a shared rollout stands its source's baseline.
        by_source = torch.stack([advantages[source][source] for source in range(n)])  # (n, B, G)
        for learner in range(n):
            own = advantages[learner][learner]
            advantages[learner] = by_source.clone()
            advantages[learner][learner] = own
    return Judgement(advantages, baselines, guarded)


def needs_token_logps(algorithm: AlgorithmSpec) -> bool:
    """True where the ratio is taken token by token."""
    return algorithm.name == "grpo"


def rescores_shared(algorithm: AlgorithmSpec) -> bool:
    """True where the old log-probability of a shared rollout is the learner's own at the start of the step."""
    return algorithm.name == "naive_learner" and algorithm.shares_rollouts


def loss(
    algorithm: AlgorithmSpec, batch: MicroBatch, num_updates: int, denominator: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The scalar and per-row stats (b,) of one micro-batch; `algorithm` is RunSpec.rule: every number filled in."""
    common = (batch.logps, batch.mask)
    if algorithm.name == "grpo":
        assert batch.old_logps is not None
        return grpo.loss(
            *common,
            batch.old_logps,
            batch.advantages,
            algorithm,
            ref_logps=batch.ref_logps,
            denominator=denominator,
        )
    if not algorithm.shares_rollouts:
        return gspo.loss(
            *common,
            batch.old_mean_logp,
            batch.advantages,
            algorithm,
            ref_logps=batch.ref_logps,
            denominator=denominator,
        )
    if algorithm.name == "hacpo":
        return hacpo.loss(
            *common,
            batch.old_mean_logp,
            batch.advantages,
            batch.is_self,
            batch.omega,
            num_updates,
            algorithm,
            ref_logps=batch.ref_logps,
            source_lengths=batch.source_lengths,
            denominator=denominator,
        )
    return naive.loss(
        *common,
        batch.old_mean_logp,
        batch.advantages,
        batch.is_self,
        algorithm,
        ref_logps=batch.ref_logps,
        source_lengths=batch.source_lengths,
        denominator=denominator,
    )
