"""Parts that several algorithms share: sequence ratio, clip, KL penalty, joint advantages. Pure tensor functions.

Functions with `ops` are written once: it is torch in a loss, and numpy, in float32 too, where a page explains a weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


def log_ratio(
    logps: Tensor, mask: Tensor, source_mean_logp: Tensor, is_self: Tensor, source_lengths: Tensor | None, config: Any
) -> tuple[Tensor, Tensor]:
    """log s of Eq. (11), clamped, (b,), and where it was, (b,) bool.

    logps, mask: (b, T), the mask as numbers.  source_mean_logp, is_self, source_lengths: (b,).
    config: ratio_length, max_log_ratio (10 if it has none).
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
    return raw.clamp(-limit, limit), raw.detach().abs() > limit


def clipped_objective(
    log_ratio: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """PPO's min(s A, clip(s) A), the clipped s, the side of the band, where the gradient flows; of any one shape."""
    ratio = log_ratio.exp()
    _, clipped, side, flows = own_weights(ratio.detach(), advantages, low, high, torch)
    return torch.where(flows, ratio, clipped) * advantages, clipped, side, flows


class WeightTerms(NamedTuple):
    """Of each row: its weight, the clipped s or the gate, the side of the band, and where the gradient flows."""

    weight: Any
    clipped: Any
    side: Any
    flows: Any


def own_weights(ratio: Any, advantages: Any, low: float, high: float, ops: Any) -> WeightTerms:
    """Eq. (47): s A where it is the minimum of s A and c A."""
    clipped = ops.clip(ratio, low, high)
    weight = ratio * advantages
    return WeightTerms(weight, clipped, side_of_band(ratio, low, high), weight <= clipped * advantages)


def side_of_band(ratio: Any, low: float, high: float) -> Any:
    """-1 below, 0 inside, 1 above."""
    return (ratio > high) * 1 - (ratio < low) * 1


def power(values: Any, exponent: float) -> Any:
    """Powers as torch computes them, by products for exponents 1 to 3; numpy's others may differ in the last bit."""
    if exponent in (1, 2, 3):
        return (values, values * values, values * values * values)[int(exponent) - 1]
    return values**exponent


def kl_to_reference(logps: Tensor, ref_logps: Tensor, mask: Tensor, counts: Tensor) -> Tensor:
    """Mean over tokens of k3 = e^d - d - 1, d = ref - logp, (b,); 0 where `counts` (b,) is False.

    logps, ref_logps, mask: (b, T), the mask as numbers.
    """
    gap = (ref_logps.to(logps.dtype) - logps).where((mask > 0) & counts[:, None], 0.0)  # (b, T)
    return ((gap.exp() - gap - 1) * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def loss_and_kl(
    objective: Tensor,
    logps: Tensor,
    mask: Tensor,
    penalised: Tensor,
    beta: float,
    ref_logps: Tensor | None,
    denominator: float | None,
    factors: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """-(sum of objectives) / rows + beta * mean KL of the penalised rows; and the KL of each row, (b,).

    objective: (b,).  penalised: (b,) bool.  logps, mask, ref_logps: (b, T).  denominator: rows planned for the whole
    mini-batch, so that the sum over micro-batches does not depend on the split; default: b, and for the KL the
    penalised rows.  factors: (b,), of each row's KL.
    """
    rows = float(denominator if denominator is not None else max(len(objective), 1))
    total = -objective.sum() / rows
    if ref_logps is None:
        return total, torch.zeros_like(objective)
    kl = kl_to_reference(logps, ref_logps, mask, penalised)  # (b,)
    weighted = kl if factors is None else kl * factors  # (b,)
    # The trainer's mini-batches are all self or all shared, so the planned rows are those of the mean.
    return total + beta * weighted.sum() / (rows if denominator is not None else penalised.sum().clamp(min=1)), kl


# What a loss returns of each row, and the events record.
ROW_STATS = ("sequence_ratio", "clipped_ratio", "clip_side", "gradient_flows", "weight", "kl")


def row_stats(
    log_ratio: Tensor, clipped: Tensor, side: Tensor, flows: Tensor, objective: Tensor, kl: Tensor
) -> dict[str, Tensor]:
    """What a loss returns of each row, (b,): clip_side is -1 below, 0 inside and 1 above the band."""
    log_ratio, objective = log_ratio.detach(), objective.detach()
    stats = {
        "sequence_ratio": log_ratio.exp(),
        "clipped_ratio": clipped,
        "clip_side": side,
        "gradient_flows": flows,
        "weight": torch.where(flows, objective, 0.0),
        "objective": objective,
        "kl": kl,
    }
    return {name: value.detach() for name, value in stats.items()}


def own_and_cross_loss(
    logps: Tensor,
    completion_mask: Tensor,
    source_mean_logp: Tensor,
    advantages: Tensor,
    is_self: Tensor,
    omega: Tensor,
    config: Any,
    shared_weights: Callable[[Tensor, Tensor, Tensor], WeightTerms],
    *,
    ref_logps: Tensor | None = None,
    source_lengths: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Eq. (47) on own rows, weight * log s by `shared_weights`(s, A, omega) on shared ones; shapes as for hacpo.loss.

    Returns the scalar and row_stats.
    """
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    mask, logps = completion_mask.to(dtype), logps.to(dtype)
    advantages, omega = advantages.to(dtype), omega.to(dtype)
    log_s, saturated = log_ratio(logps, mask, source_mean_logp.to(dtype), is_self, source_lengths, config)
    # Eq. (47): min(s A, clip(s) A)
    own, own_clipped, own_side, own_flows = clipped_objective(
        log_s, advantages, 1 - config.epsilon, 1 + config.epsilon_high
    )
    cross = shared_weights(log_s.detach().exp(), advantages, omega)
    # Eq. (12): d/dx [c sg(c)^alpha] = sg(c)^(1 + alpha) d/dx log s. In this form all modes log the paper's objective.
    shared = cross.weight * (1 + torch.where(cross.flows, log_s - log_s.detach(), 0.0))  # (b,)
    objective = torch.where(is_self, own, shared)  # (b,)
    penalised = is_self | getattr(config, "cross_kl", False)  # (b,)
    total, kl = loss_and_kl(objective, logps, mask, penalised, config.beta, ref_logps, denominator)
    clipped, side = torch.where(is_self, own_clipped, cross.clipped), torch.where(is_self, own_side, cross.side)
    flows = torch.where(is_self, own_flows, cross.flows) & ~saturated & (objective != 0)  # (b,)
    return total, row_stats(log_s, clipped, side, flows, objective, kl)


def uniform_groups(rewards: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """By prompt: whether all valid rewards are equal, (B,) bool, and the highest, (B,). rewards, valid: (n, B, G)."""
    highest = rewards.where(valid, -torch.inf).amax(dim=(0, 2))  # (B,)
    lowest = rewards.where(valid, torch.inf).amin(dim=(0, 2))  # (B,)
    return highest == lowest, highest


def reward_scale(rewards: Tensor, valid: Tensor, mode: str, epsilon: float = 1e-6) -> Tensor:
    """The divisor of a prompt's advantages, (B,): std with ddof 1 plus epsilon, or 1.

    rewards, valid: (n, B, G).  mode: group (of the prompt), batch (of all prompts) or none.
    """
    num_prompts = rewards.shape[1]
    if mode == "none":
        return rewards.new_ones(num_prompts)
    if mode not in ("group", "batch"):
        raise ValueError(f"scale_rewards {mode!r}: group, batch or none is needed")
    over = (0, 2) if mode == "group" else (0, 1, 2)
    count = valid.sum(dim=over, keepdim=True)  # (1, B or 1, 1)
    mean = rewards.where(valid, 0.0).sum(dim=over, keepdim=True) / count.clamp(min=1)
    centred = (rewards - mean).where(valid, 0.0)  # (n, B, G)
    # A single rollout is a uniform group: its advantage is 0 with any divisor.
    std = (centred.square().sum(dim=over, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return (std + epsilon).expand(1, num_prompts, 1)[0, :, 0]


def joint_advantages(
    rewards: Tensor, *, valid: Tensor | None = None, scale_rewards: str = "group", epsilon: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """The same for every learner: (r - mean of all r of the prompt) / (std_ddof1 of all + epsilon).

    rewards: (n, B, G).  valid: (n, B, G) bool, True = scored; an unscored rollout gets advantage 0.
    Returns advantages (n, B, G) and baselines (B,).
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
    count = valid.sum(dim=(0, 2))  # (B,)
    mean = rewards.where(valid, 0.0).sum(dim=(0, 2)) / count.clamp(min=1)  # (B,)
    uniform, highest = uniform_groups(rewards, valid)  # (B,) each
    # The mean is rounded, and divided by epsilon the error would teach.
    baseline = torch.where(uniform, highest, mean)  # (B,)
    deviation = (rewards - baseline[:, None]).where(valid, 0.0)  # (n, B, G)
    return deviation / reward_scale(rewards, valid, scale_rewards, epsilon)[:, None], baseline
