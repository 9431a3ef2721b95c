"""The objective of a run by its algorithm and options; the formulas are in workers/algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workers.algorithms import grpo, gspo, hacpo, naive
from workers.contract.spec.algorithm import AlgorithmSpec


@dataclass(frozen=True)
class Objective:
    """By learner: advantages (n, B, G), baselines (B,), and prompts whose baseline the guard replaced (B,) bool.

    in_baseline: (n, B, G) bool, the rollouts that the baseline averages: those of trusted sources. An untrusted
    source has the advantages that it would have if it were trusted too.
    """

    advantages: list[Tensor]
    baselines: list[Tensor]
    guarded: list[Tensor]
    in_baseline: list[Tensor]


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one learner. logps, mask, ref_logps, old_logps: (b, T); the rest (b,).

    old_mean_logp: the denominator of the sequence ratio.  old_logps: the same by token (own rollouts only).
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


def objective_of(
    algorithm: AlgorithmSpec,
    rewards: Tensor,
    valid: Tensor,
    ratio: Tensor,
    reward_max: float = 1.0,
    trusted: Tensor | None = None,
) -> Objective:
    """Every learner's advantages of a step. rewards, valid: (n, B, G).  ratio: (n, n), omega.

    trusted: (n, n) bool, [learner, source], its diagonal True; None: every source is trusted.
    """
    agents = torch.arange(len(rewards))
    advantages, baselines, guarded, in_baseline = [], [], [], []
    for learner in range(len(rewards)):
        if not algorithm.shares_rollouts:
            sources = agents == learner  # (n,)
        else:
            sources = torch.ones_like(agents, dtype=torch.bool) if trusted is None else trusted[learner]
        view = (algorithm, rewards, valid, ratio, learner, reward_max)
        advantage, baseline, replaced = _advantages_of(*view, sources)
        for source in agents[~sources].tolist() if algorithm.shares_rollouts else ():
            advantage[source] = _advantages_of(*view, sources | (agents == source))[0][source]
        advantages.append(advantage)
        baselines.append(baseline)
        guarded.append(replaced)
        in_baseline.append(valid & sources[:, None, None])
    if algorithm.shares_rollouts and algorithm.cross_advantage == "source":
        # Eq. (10) read literally: a shared rollout is compared with its source's baseline.
        by_source = torch.stack([advantages[source][source] for source in range(len(rewards))])  # (n, B, G)
        for learner, own in enumerate(advantages):
            advantages[learner] = by_source.clone()
            advantages[learner][learner] = own[learner]
    return Objective(advantages, baselines, guarded, in_baseline)


def _advantages_of(
    algorithm: AlgorithmSpec,
    rewards: Tensor,
    valid: Tensor,
    ratio: Tensor,
    learner: int,
    reward_max: float,
    sources: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Advantages (n, B, G), baselines (B,) and guarded (B,) of a learner that uses some sources, (n,) bool."""
    scale = algorithm.scale_rewards
    in_baseline = valid & sources[:, None, None]  # (n, B, G)
    if not algorithm.shares_rollouts or (len(rewards) > 1 and sources.sum() == 1):
        # Only its own rollouts: GSPO, bit for bit.
        advantage = torch.zeros_like(rewards)
        advantage[learner], baseline = gspo.advantages(rewards[learner], valid=valid[learner], scale_rewards=scale)
    elif algorithm.name == "hacpo":
        weights = ratio if algorithm.advantage == "capability" else torch.ones_like(ratio)  # -adv: a plain joint mean
        joint = hacpo.baselines(rewards, weights, learner, valid=in_baseline, reward_max=reward_max)
        advantage, baseline = hacpo.advantages(
            rewards, weights, learner, valid=in_baseline, scale_rewards=scale, baseline=joint.value
        )
        return advantage, baseline, joint.guarded
    else:
        advantage, baseline = naive.advantages(rewards, valid=in_baseline, scale_rewards=scale)
    return advantage, baseline, torch.zeros_like(baseline, dtype=torch.bool)


def needs_token_logps(algorithm: AlgorithmSpec) -> bool:
    """True if the ratio is taken token by token."""
    return algorithm.name == "grpo"


def rescores_shared(algorithm: AlgorithmSpec) -> bool:
    """True if the old log-probability of a shared rollout is the learner's own at the start of the step."""
    return algorithm.name == "naive_learner" and algorithm.shares_rollouts


def loss(
    algorithm: AlgorithmSpec, batch: MicroBatch, num_updates: int, denominator: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The scalar and per-row stats (b,) of one micro-batch; `algorithm` is RunSpec.rule: every number filled in."""
    tokens = (batch.logps, batch.mask)
    options: dict[str, Any] = {"ref_logps": batch.ref_logps, "denominator": denominator}
    if algorithm.name == "grpo":
        assert batch.old_logps is not None
        return grpo.loss(*tokens, batch.old_logps, batch.advantages, algorithm, **options)
    rows = (batch.old_mean_logp, batch.advantages)
    if not algorithm.shares_rollouts:
        return gspo.loss(*tokens, *rows, algorithm, **options)
    options["source_lengths"] = batch.source_lengths
    if algorithm.name == "hacpo":
        return hacpo.loss(*tokens, *rows, batch.is_self, batch.omega, num_updates, algorithm, **options)
    return naive.loss(*tokens, *rows, batch.is_self, algorithm, **options)
