"""GSPO, each agent alone: group-relative advantages and the sequence-level clipped loss. Pure tensor functions.

Written out on its own rather than through hacpo.py, so that "HACPO with one agent is GSPO" compares two derivations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workers.algorithms import common


def advantages(
    rewards: Tensor, *, valid: Tensor | None = None, epsilon: float = 1e-6, scale_rewards: str = "group"
) -> tuple[Tensor, Tensor]:
    """Group-relative advantages of one agent: (r - mean) / (std_ddof1 + epsilon).

    rewards: (B, G).  valid: (B, G) bool, True = scored; an unscored rollout counts nowhere and gets advantage 0.
    scale_rewards: the std is of the prompt's group, of the batch, or 1 (none).
    Returns advantages (B, G) and baselines (B,).
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
    count = valid.sum(dim=1)  # (B,)
    total = rewards.where(valid, 0.0).sum(dim=1)  # (B,)
    mean = total / count.clamp(min=1)  # (B,)
    highest = rewards.where(valid, -torch.inf).amax(dim=1)  # (B,)
    lowest = rewards.where(valid, torch.inf).amin(dim=1)  # (B,)
    # A uniform group teaches nothing; without this, rounding of the mean divided by epsilon would.
    baseline = torch.where((highest == lowest) & (count > 0), highest, mean)  # (B,)
    deviation = (rewards - baseline[:, None]).where(valid, 0.0)  # (B, G)
    return deviation / common.reward_scale(rewards, valid, scale_rewards, epsilon)[:, None], baseline


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
    config: epsilon, epsilon_high, beta, max_log_ratio.  denominator: rows planned for the whole mini-batch, so that
    the sum over micro-batches does not depend on how it was split; default: b.
    Returns the scalar and per-row stats (b,): sequence_ratio, clipped_ratio, clip_side (-1, 0, 1), gradient_flows,
    weight, objective, kl.
    """
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    mask = completion_mask.to(dtype)
    advantages = advantages.to(dtype)
    length = mask.sum(dim=1).clamp(min=1)  # (b,)
    raw = (logps.to(dtype) * mask).sum(dim=1) / length - old_mean_logp.to(dtype)  # (b,)
    ratio = raw.clamp(-config.max_log_ratio, config.max_log_ratio).exp()  # (b,)
    low, high = 1 - config.epsilon, 1 + config.epsilon_high
    clipped = ratio.detach().clamp(low, high)  # (b,)
    unclipped_is_minimum = ratio.detach() * advantages <= clipped * advantages  # (b,)
    objective = torch.where(unclipped_is_minimum, ratio, clipped) * advantages  # (b,)
    rows = float(denominator if denominator is not None else max(len(logps), 1))
    total = -objective.sum() / rows
    kl = torch.zeros_like(length)  # (b,)
    if ref_logps is not None:
        gap = (ref_logps.to(dtype) - logps.to(dtype)).where(mask > 0, 0.0)  # (b, T)
        kl = ((gap.exp() - gap - 1) * mask).sum(dim=1) / length  # (b,) k3
        total = total + config.beta * kl.sum() / rows
    with torch.no_grad():
        flows = unclipped_is_minimum & (raw.abs() <= config.max_log_ratio) & (advantages != 0)  # (b,)
        stats = {
            "sequence_ratio": ratio.detach(),
            "clipped_ratio": clipped,
            "clip_side": (ratio > high).int() - (ratio < low).int(),
            "gradient_flows": flows,
            "weight": torch.where(flows, ratio * advantages, 0.0),
            "objective": objective.detach(),
            "kl": kl.detach(),
        }
    return total, stats
