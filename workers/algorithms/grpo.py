"""GRPO, each agent alone: one ratio for each token, mean over tokens and then over rows. Pure tensor functions.

Its advantages are GSPO's (gspo.advantages): the two rules differ in the ratio only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workers.algorithms import common


def loss(
    logps: Tensor,
    completion_mask: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    config: Any,
    *,
    ref_logps: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The GRPO loss of one micro-batch: -(1/rows) sum_i mean_t min(r_t A_i, clip(r_t) A_i) + beta * KL.

    logps, completion_mask, old_logps, ref_logps: (b, T).  advantages: (b,).
    config: epsilon, epsilon_high, beta, max_log_ratio.  denominator: rows planned for the whole mini-batch; default: b.
    Returns the scalar and per-row stats (b,) as gspo.loss does, where sequence_ratio = exp(mean_t log r_t),
    clipped_ratio the same of clipped r_t, clip_side the side on which more tokens lie, gradient_flows = any token's;
    and clipped_low, clipped_high: shares of tokens whose gradient the clip removed.
    """
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    mask, logps = completion_mask.to(dtype), logps.to(dtype)
    length = mask.sum(dim=1).clamp(min=1)  # (b,)
    row_advantages = advantages.to(dtype)[:, None]  # (b, 1)
    raw = (logps - old_logps.to(dtype)) * mask  # (b, T)
    log_ratio = raw.clamp(-config.max_log_ratio, config.max_log_ratio)  # (b, T)
    low, high = 1 - config.epsilon, 1 + config.epsilon_high
    objective, clipped, side, flows = common.clipped_objective(log_ratio, row_advantages, low, high)  # (b, T) each

    def over_tokens(values: Tensor) -> Tensor:
        return (values.to(dtype) * mask).sum(dim=1) / length  # (b,)

    every = torch.ones_like(length, dtype=torch.bool)  # (b,)
    row_objective = over_tokens(objective)  # (b,)
    total, kl = common.loss_and_kl(row_objective, logps, mask, every, config.beta, ref_logps, denominator)
    with torch.no_grad():
        flows = flows & (raw.abs() <= config.max_log_ratio) & (row_advantages != 0) & (mask > 0)  # (b, T)
        stats = {
            "sequence_ratio": over_tokens(log_ratio).exp(),
            "clipped_ratio": over_tokens(clipped.log()).exp(),
            "clip_side": (side * mask).sum(dim=1).sign().int(),
            "gradient_flows": flows.any(dim=1),
            "weight": over_tokens(torch.where(flows, objective, 0.0)),
            "objective": row_objective,
            "kl": kl,
            "clipped_low": over_tokens((side < 0) & ~flows),
            "clipped_high": over_tokens((side > 0) & ~flows),
        }
    return total, {name: value.detach() for name, value in stats.items()}
