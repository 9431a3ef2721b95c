"""Parts that several losses share: the sequence ratio, PPO's clip, the KL penalty, and the scale of advantages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def log_ratio(
    logps: Tensor, mask: Tensor, source_mean_logp: Tensor, is_self: Tensor, source_lengths: Tensor | None, config: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """log s of Eq. (11), clamped, (b,); the learner's lengths (b,); where the clamp cut, (b,) bool.

    logps, mask: (b, T), the mask as numbers.  source_mean_logp, is_self, source_lengths: (b,).
    config: ratio_length, max_log_ratio (10 where it has none).
    """
    length = mask.sum(dim=1).clamp(min=1)  # (b,)
    divisor = length
    if config.ratio_length == "source":
        if source_lengths is None:
            raise ValueError("ratio_length 'source' needs source_lengths")
        # (1 / L_source)(sum log pi_k - sum log pi_j) = sum log pi_k / L_source - source_mean_logp
        divisor = torch.where(is_self, length, source_lengths.to(length.dtype).clamp(min=1))
    raw = (logps * mask).sum(dim=1) / divisor - source_mean_logp  # (b,)
    limit = getattr(config, "max_log_ratio", 10.0)
    return raw.clamp(-limit, limit), length, raw.detach().abs() > limit


def clipped_objective(
    log_ratio: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """PPO's min(s A, clip(s) A), the clipped s, the side of the band, where the gradient flows; of any one shape."""
    ratio = log_ratio.exp()
    clipped = ratio.detach().clamp(low, high)
    flows = ratio.detach() * advantages <= clipped * advantages  # the unclipped branch is the minimum
    objective = torch.where(flows, ratio, clipped) * advantages
    return objective, clipped, side_of_band(ratio.detach(), low, high), flows


def side_of_band(ratio: Tensor, low: float, high: float) -> Tensor:
    """-1 below, 0 inside, 1 above."""
    return (ratio > high).int() - (ratio < low).int()


def kl_to_reference(logps: Tensor, ref_logps: Tensor, mask: Tensor, counts: Tensor) -> Tensor:
    """Mean over tokens of k3 = e^d - d - 1, d = ref - logp, (b,); 0 where `counts` (b,) is False.

    logps, ref_logps, mask: (b, T), the mask as numbers.
    """
    gap = (ref_logps.to(logps.dtype) - logps).where((mask > 0) & counts[:, None], 0.0)  # (b, T)
    return ((gap.exp() - gap - 1) * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def reward_scale(rewards: Tensor, valid: Tensor, mode: str, epsilon: float = 1e-6) -> Tensor:
    """What a prompt's advantages are divided by, (B,): std with ddof 1 plus epsilon, or 1.

    rewards, valid: (n, B, G), or (B, G) of one agent.  mode: group (of the prompt), batch (of all prompts) or none.
    """
    if rewards.dim() == 2:
        rewards, valid = rewards[None], valid[None]
    num_prompts = rewards.shape[1]
    if mode == "none":
        return rewards.new_ones(num_prompts)
    if mode not in ("group", "batch"):
        raise ValueError(f"scale_rewards {mode!r}: group, batch or none is needed")
    over = (0, 2) if mode == "group" else (0, 1, 2)
    count = valid.sum(dim=over, keepdim=True)  # (1, B or 1, 1)
    mean = rewards.where(valid, 0.0).sum(dim=over, keepdim=True) / count.clamp(min=1)
    centred = (rewards - mean).where(valid, 0.0)  # (n, B, G)
    # A lone rollout is a uniform group, whose advantage is 0 whatever the divisor.
    std = (centred.square().sum(dim=over, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return (std + epsilon).expand(1, num_prompts, 1)[0, :, 0]
