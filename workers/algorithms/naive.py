"""Naive sharing, the paper's negative control: a joint plain mean, no omega, GSPO's clip on every rollout.

Two kinds differ outside the loss: the old log-probability of a shared rollout is its source's (naive_source), or the
learner's own at the start of the step (naive_learner). Pure tensor functions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workers.algorithms import common


def advantages(
    rewards: Tensor, *, valid: Tensor | None = None, scale_rewards: str = "group", epsilon: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """The same for every learner: (r - mean of all r of the prompt) / (std_ddof1 of all + epsilon).

    rewards: (n, B, G).  valid: (n, B, G) bool, True = scored; an unscored rollout gets advantage 0.
    Returns advantages (n, B, G) and baselines (B,).
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
    count = valid.sum(dim=(0, 2))  # (B,)
    mean = rewards.where(valid, 0.0).sum(dim=(0, 2)) / count.clamp(min=1)  # (B,)
    uniform, highest = common.uniform_groups(rewards, valid)  # (B,) each
    # The mean is rounded, and divided by epsilon the error would teach.
    baseline = torch.where(uniform, highest, mean)  # (B,)
    deviation = (rewards - baseline[:, None]).where(valid, 0.0)  # (n, B, G)
    return deviation / common.reward_scale(rewards, valid, scale_rewards, epsilon)[:, None], baseline


def loss(
    logps: Tensor,
    completion_mask: Tensor,
    old_mean_logp: Tensor,
    advantages: Tensor,
    is_self: Tensor,
    config: Any,
    *,
    ref_logps: Tensor | None = None,
    source_lengths: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """GSPO's loss over own and shared rollouts alike; the KL penalty is on own ones, or on all with cross_kl.

    Shapes, denominator and stats as in hacpo.loss.
    """
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    mask, logps, advantages = completion_mask.to(dtype), logps.to(dtype), advantages.to(dtype)
    old_mean_logp = old_mean_logp.to(dtype)
    log_ratio, saturated = common.log_ratio(logps, mask, old_mean_logp, is_self, source_lengths, config)
    low, high = 1 - config.epsilon, 1 + config.epsilon_high
    objective, clipped, side, flows = common.clipped_objective(log_ratio, advantages, low, high)  # (b,) each
    penalised = is_self | getattr(config, "cross_kl", False)  # (b,)
    total, kl = common.loss_and_kl(objective, logps, mask, penalised, config.beta, ref_logps, denominator)
    flows = flows & ~saturated & (advantages != 0)  # (b,)
    return total, common.row_stats(log_ratio, clipped, side, flows, objective, kl)
