"""Which rule a run follows: the advantages of every learner, and the loss of a micro-batch, by the algorithm's name.

Options that name an ablation or another paper's choice act here; the formulas stand in workers/algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from workers.algorithms import grpo, gspo, hacpo, naive
from workers.contract.spec.algorithm import AlgorithmSpec


@dataclass(frozen=True)
class Objective:
    """By learner: advantages (n, B, G), baselines (B,), and prompts whose baseline the guard replaced (B,) bool.

    heard: (n, B, G) bool, the rollouts that stand behind its baseline. A source that it does not trust is not among
    them; the advantages of such a source are those that it would have if it were trusted too.
    """

    advantages: list[Tensor]
    baselines: list[Tensor]
    guarded: list[Tensor]
    in_baseline: list[Tensor]


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


def objective_of(
    algorithm: AlgorithmSpec,
    rewards: Tensor,
    valid: Tensor,
    ratio: Tensor,
    reward_max: float = 1.0,
    trusted: Tensor | None = None,
) -> Objective:
    """Every learner's view of a step. rewards, valid: (n, B, G).  ratio: (n, n), omega.

    trusted: (n, n) bool, [learner, source], its diagonal True; None: everybody trusts everybody.
    """
    n = len(rewards)
    advantages, baselines, guarded, in_baseline = [], [], [], []
    for learner in range(n):
        listens = torch.ones(n, dtype=torch.bool) if trusted is None else trusted[learner]  # (n,)
        if not algorithm.shares_rollouts:
            listens = torch.arange(n) == learner
        in_baseline.append(valid & listens[:, None, None])
        advantage, baseline, replaced = _view(algorithm, rewards, valid, ratio, learner, listens, reward_max)
        for source in (~listens).nonzero()[:, 0].tolist() if algorithm.shares_rollouts else ():
            also = listens | (torch.arange(n) == source)
            advantage[source] = _view(algorithm, rewards, valid, ratio, learner, also, reward_max)[0][source]
        advantages.append(advantage)
        baselines.append(baseline)
        guarded.append(replaced)
    if algorithm.shares_rollouts and algorithm.cross_advantage == "source":
        # Eq. (10) read literally: behind a shared rollout stands its source's baseline.
        by_source = torch.stack([advantages[source][source] for source in range(n)])  # (n, B, G)
        for learner in range(n):
            own = advantages[learner][learner]
            advantages[learner] = by_source.clone()
            advantages[learner][learner] = own
    return Objective(advantages, baselines, guarded, in_baseline)


def _view(
    algorithm: AlgorithmSpec,
    rewards: Tensor,
    valid: Tensor,
    ratio: Tensor,
    learner: int,
    listens: Tensor,
    reward_max: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Advantages (n, B, G), baselines (B,) and guarded (B,) of a learner that listens to some agents, (n,) bool."""
    scale = algorithm.scale_rewards
    in_baseline = valid & listens[:, None, None]  # (n, B, G)
    if not algorithm.shares_rollouts or (len(rewards) > 1 and listens.sum() == 1):
        # Nobody else is heard: GSPO, bit for bit.
        advantage = torch.zeros_like(rewards)
        advantage[learner], baseline = gspo.advantages(rewards[learner], valid=valid[learner], scale_rewards=scale)
        return advantage, baseline, torch.zeros_like(baseline, dtype=torch.bool)
    if algorithm.name == "hacpo":
        weights = ratio if algorithm.advantage == "capability" else torch.ones_like(ratio)  # -adv: a plain joint mean
        rules = hacpo.baselines(rewards, weights, learner, valid=in_baseline, reward_max=reward_max)
        advantage, baseline = hacpo.advantages(
            rewards, weights, learner, valid=in_baseline, scale_rewards=scale, baseline=rules.value
        )
        return advantage, baseline, rules.guarded
    advantage, baseline = naive.advantages(rewards, valid=in_baseline, scale_rewards=scale)
    return advantage, baseline, torch.zeros_like(baseline, dtype=torch.bool)


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
