"""GSPO, each agent alone: group-relative advantages and the sequence-level clipped loss. Pure tensor functions.

The clipped objective is not hacpo.py's, so that "HACPO with one agent is GSPO" compares two derivations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workers.algorithms import common, naive


def advantages(
    rewards: Tensor, *, valid: Tensor | None = None, epsilon: float = 1e-6, scale_rewards: str = "group"
) -> tuple[Tensor, Tensor]:
    """Group-relative advantages of one agent: (r - mean) / (std_ddof1 + epsilon).

    rewards: (B, G).  valid: (B, G) bool, True = scored; an unscored rollout counts nowhere and gets advantage 0.
    scale_rewards: the std is of the prompt's group, of the batch, or 1 (none).
    Returns advantages (B, G) and baselines (B,).
    """
    advantages, baseline = naive.advantages(
        rewards[None], valid=None if valid is None else valid[None], scale_rewards=scale_rewards, epsilon=epsilon
    )
    return advantages[0], baseline


def loss(
    logps: Tensor,
    completion_mask: Tensor,
    old_mean_logp: Tensor,
    advantages: Tensor,
    config: Any,
    *,
    ref_logps: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The GSPO loss of one micro-batch, Eq. (47) in sequence-level form.

    logps, completion_mask, ref_logps: (b, T).  old_mean_logp, advantages: (b,).
    config: epsilon, epsilon_high, beta, max_log_ratio.  denominator: rows planned for the whole mini-batch; default: b.
    Returns the scalar and common.row_stats.
    """
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    mask, logps, advantages = completion_mask.to(dtype), logps.to(dtype), advantages.to(dtype)
    length = mask.sum(dim=1).clamp(min=1)  # (b,)
    raw = (logps * mask).sum(dim=1) / length - old_mean_logp.to(dtype)  # (b,)
    log_ratio = raw.clamp(-config.max_log_ratio, config.max_log_ratio)  # (b,)
    ratio = log_ratio.exp()  # (b,)
    low, high = 1 - config.epsilon, 1 + config.epsilon_high
    clipped = ratio.detach().clamp(low, high)  # (b,)
    unclipped_is_minimum = ratio.detach() * advantages <= clipped * advantages  # (b,)
    objective = torch.where(unclipped_is_minimum, ratio, clipped) * advantages  # (b,)
    penalised = torch.ones_like(length, dtype=torch.bool)  # (b,)
    total, kl = common.loss_and_kl(objective, logps, mask, penalised, config.beta, ref_logps, denominator)
    side = (ratio > high).int() - (ratio < low).int()  # (b,)
    flows = unclipped_is_minimum & (raw.abs() <= config.max_log_ratio) & (advantages != 0)  # (b,)
    return total, common.row_stats(log_ratio, clipped, side, flows, objective, kl)
