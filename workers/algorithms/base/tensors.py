"""Parts that several algorithms share: sequence ratio, clip, KL penalty, joint advantages. Pure tensor functions.

Functions with `ops` are written once: it is torch in a loss, and numpy, in float32 too, where a page explains a weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one learner. logps, mask, ref_logps, old_logps: (b, T); the rest (b,).

    old_mean_logp: the denominator of the sequence ratio.  old_logps: the same by token (own rollouts only).
    num_tokens: of all responses of the mini-batch.  max_tokens: the longest response that the run allows.
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
    num_tokens: int = 0
    max_tokens: int = 0

    def in_loss_precision(self) -> MicroBatch:
        """The batch in float32, or in float64 if logps are, with the mask as numbers."""
        dtype = torch.float64 if self.logps.dtype == torch.float64 else torch.float32
        names = ("logps", "mask", "old_mean_logp", "advantages", "omega", "ref_logps", "old_logps")
        values = {name: value.to(dtype) for name in names if (value := getattr(self, name)) is not None}
        return replace(self, **values)


class SharedTerm(Protocol):
    """The settings of a loss over own and shared rows: those of a SharingSpec, every number filled in."""

    @property
    def ratio_length(self) -> str: ...
    @property
    def max_log_ratio(self) -> float: ...
    @property
    def beta(self) -> float: ...
    @property
    def cross_kl(self) -> bool: ...
    def own_band(self) -> tuple[float, float]: ...


def log_ratio(batch: MicroBatch, config: SharedTerm) -> tuple[Tensor, Tensor]:
    """log s of Eq. (11), clamped, (b,), and where it was, (b,) bool. batch: in the loss's precision."""
    length = batch.mask.sum(dim=1).clamp(min=1)  # (b,)
    divisor = length
    if config.ratio_length == "source":
        # (1 / L_source)(sum log pi_k - sum log pi_j) = sum log pi_k / L_source - source_mean_logp
        divisor = torch.where(batch.is_self, length, batch.source_lengths.to(length.dtype).clamp(min=1))
    raw = (batch.logps * batch.mask).sum(dim=1) / divisor - batch.old_mean_logp  # (b,)
    return raw.clamp(-config.max_log_ratio, config.max_log_ratio), raw.detach().abs() > config.max_log_ratio


def clipped_objective(
    log_ratio: Tensor, advantages: Tensor, low: float, high: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """PPO's min(s A, clip(s) A), the clipped s, the side of the band, where the gradient flows; of any one shape."""
    ratio = log_ratio.exp()
    _, clipped, side, flows = own_weights(ratio.detach(), advantages, low, high, torch)
    return torch.where(flows, ratio, clipped) * advantages, clipped, side, flows


class WeightTerms(NamedTuple):
    """The terms of each row: weight, clipped s or gate, side of the band, and where the gradient flows."""

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
    batch: MicroBatch,
    penalised: Tensor,
    beta: float,
    denominator: float,
    factors: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """-(sum of objectives) / rows + beta * mean KL of the penalised rows; and the KL of each row, (b,).

    objective: (b,).  batch: in the loss's precision.  penalised: (b,) bool.  denominator: rows planned for the whole
    mini-batch, so that the sum over micro-batches does not depend on the split.  factors: (b,), of each row's KL.
    """
    rows = float(denominator)
    total = -objective.sum() / rows
    if batch.ref_logps is None:
        return total, torch.zeros_like(objective)
    kl = kl_to_reference(batch.logps, batch.ref_logps, batch.mask, penalised)  # (b,)
    weighted = kl if factors is None else kl * factors  # (b,)
    # The trainer's mini-batches are all self or all shared, so the planned rows are those of the mean.
    return total + beta * weighted.sum() / rows, kl


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
    batch: MicroBatch,
    config: SharedTerm,
    shared_weights: Callable[[Tensor, Tensor, Tensor], WeightTerms],
    denominator: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Eq. (47) on own rows, weight * log s by `shared_weights`(s, A, omega) on shared ones.

    Returns the scalar and row_stats.
    """
    batch = batch.in_loss_precision()
    log_s, saturated = log_ratio(batch, config)
    # Eq. (47): min(s A, clip(s) A)
    own, own_clipped, own_side, own_flows = clipped_objective(log_s, batch.advantages, *config.own_band())
    cross = shared_weights(log_s.detach().exp(), batch.advantages, batch.omega)
    # Eq. (12): d/dx [c sg(c)^alpha] = sg(c)^(1 + alpha) d/dx log s. In this form all modes log the paper's objective.
    shared = cross.weight * (1 + torch.where(cross.flows, log_s - log_s.detach(), 0.0))  # (b,)
    objective = torch.where(batch.is_self, own, shared)  # (b,)
    total, kl = loss_and_kl(objective, batch, batch.is_self | config.cross_kl, config.beta, denominator)
    clipped = torch.where(batch.is_self, own_clipped, cross.clipped)
    side = torch.where(batch.is_self, own_side, cross.side)
    flows = torch.where(batch.is_self, own_flows, cross.flows) & ~saturated & (objective != 0)  # (b,)
    return total, row_stats(log_s, clipped, side, flows, objective, kl)


def uniform_groups(rewards: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Whether all valid rewards of a prompt are equal, (B,) bool, and the highest, (B,). rewards, valid: (n, B, G)."""
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
    """Advantages that are equal for all learners: (r - mean of all r of the prompt) / (std_ddof1 of all + epsilon).

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
