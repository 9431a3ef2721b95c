"""HACPO, arXiv 2603.02604: capabilities, ratios, capability-adjusted advantages and the loss. Pure tensor functions.

Agent indices: `learner` is the paper's k, `source` its j. ratio[a, b] is omega(a, b) = P[a] / P[b], clipped.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workers.algorithms import common

CAPABILITY_FLOOR = 1e-8


class CapabilityTracker:
    """Capability of each agent, Eq. (9): its mean positive reward over the last `window` steps, this one too."""

    def __init__(
        self,
        n_agents: int,
        window: int = 5,
        *,
        ratio_min: float = 0.1,
        ratio_max: float = 10.0,
        warmup_steps: int = 0,
        floor: float = CAPABILITY_FLOOR,
    ) -> None:
        self.n_agents = n_agents
        self.ratio_min, self.ratio_max = ratio_min, ratio_max
        self.warmup_steps = warmup_steps
        self.floor = floor
        self.num_steps = 0
        self._history: list[deque[float]] = [deque(maxlen=window) for _ in range(n_agents)]

    def update(self, rewards: Tensor, valid: Tensor | None = None) -> None:
        """Add the rewards of a step, (n, B, G); valid: (n, B, G) bool, True = scored.

        A step in which an agent has no valid rollout leaves its capability unchanged.
        """
        rewards = rewards.double()
        valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
        for history, own, scored in zip(self._history, rewards, valid, strict=True):
            if scored.any():
                history.append(own[scored].clamp(min=0).mean().item())
        self.num_steps += 1

    def forget(self, agent: int) -> None:
        """Restart an agent's capability from no rewards."""
        self._history[agent].clear()

    @property
    def capability(self) -> Tensor:
        """P, (n,) float64, Eq. (9). An agent without any valid rollout so far is at the floor."""
        means = [sum(history) / len(history) if history else 0.0 for history in self._history]
        return torch.tensor(means, dtype=torch.float64).clamp(min=self.floor)

    @property
    def floored(self) -> Tensor:
        """(n,) bool: True where the capability is only the floor. Two such agents have ratio 1."""
        return self.capability <= self.floor

    def ratio(self) -> Tensor:
        """Omega, (n, n) float64, Eq. (8): ratio[a, b] = clip(P[a] / P[b]); all 1 during the warm-up steps."""
        if self.num_steps <= self.warmup_steps:
            return torch.ones(self.n_agents, self.n_agents, dtype=torch.float64)
        return self._unclamped().clamp(self.ratio_min, self.ratio_max)

    def clamped(self) -> Tensor:
        """(n, n) bool: True where the clip of Eq. (8) changed the ratio, or both capabilities are at the floor."""
        if self.num_steps <= self.warmup_steps:
            return torch.zeros(self.n_agents, self.n_agents, dtype=torch.bool)
        raw, floored = self._unclamped(), self.floored
        both_floored = (floored[:, None] & floored[None, :]).fill_diagonal_(False)
        return (raw < self.ratio_min) | (raw > self.ratio_max) | both_floored

    def _unclamped(self) -> Tensor:
        capability = self.capability
        return (capability[:, None] / capability[None, :]).fill_diagonal_(1.0)  # (n, n)

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs, as JSON values."""
        return {"num_steps": self.num_steps, "history": [list(history) for history in self._history]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]
        for history, values in zip(self._history, state["history"], strict=True):
            history.clear()
            history.extend(values)


class Baselines(NamedTuple):
    """Baselines of one learner (B,), and for which prompts a rule replaced Eq. (7), (B,) bool each."""

    value: Tensor
    uniform: Tensor
    guarded: Tensor


def baselines(
    rewards: Tensor, ratio: Tensor, learner: int, *, valid: Tensor | None = None, reward_max: float = 1.0
) -> Baselines:
    """Capability-adjusted baselines of one learner, Eq. (7), with its two exceptions.

    rewards: (n, B, G).  ratio: (n, n).  valid: (n, B, G) bool.  reward_max: the verifier's upper bound.
    All rewards of a prompt equal: the baseline is that reward. Above reward_max: the mean of the learner's own.
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
    scored = rewards.where(valid, 0.0)  # (n, B, G)
    count = valid.sum(dim=(0, 2))  # (B,)  N_q
    omega = ratio[learner].to(rewards.dtype)  # (n,)  omega(k, source)
    value = (omega[:, None, None] * scored).sum(dim=(0, 2)) / count.clamp(min=1)  # (B,)
    uniform, highest = common.uniform_groups(rewards, valid)  # (B,) each
    own_count = valid[learner].sum(dim=1)  # (B,)
    own_mean = scored[learner].sum(dim=1) / own_count.clamp(min=1)  # (B,)
    joint_mean = scored.sum(dim=(0, 2)) / count.clamp(min=1)  # (B,)  where the learner has no valid rollout
    fallback = torch.where(own_count > 0, own_mean, joint_mean)  # (B,)
    guarded = ~uniform & (value > reward_max)  # (B,)
    value = torch.where(uniform, highest, torch.where(guarded, fallback, value))  # (B,)
    return Baselines(value, uniform, guarded)


def advantages(
    rewards: Tensor,
    ratio: Tensor,
    learner: int,
    *,
    valid: Tensor | None = None,
    reward_max: float = 1.0,
    epsilon: float = 1e-6,
    scale_rewards: str = "group",
    baseline: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Advantages of every rollout as one learner sees them, Eq. (6): (r - mu_k) / (std_ddof1 of all + epsilon).

    rewards: (n, B, G).  ratio: (n, n), Eq. (8).  valid: (n, B, G) bool, True = scored; an unscored rollout counts
    nowhere and gets advantage 0.  scale_rewards: the std is of the prompt's group, of the batch, or 1 (none).
    baseline: (B,), if the caller has it from `baselines`.
    Returns advantages (n, B, G) and baselines (B,).
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
    if baseline is None:
        baseline = baselines(rewards, ratio, learner, valid=valid, reward_max=reward_max).value  # (B,)
    deviation = (rewards - baseline[:, None]).where(valid, 0.0)  # (n, B, G)
    return deviation / common.reward_scale(rewards, valid, scale_rewards, epsilon)[:, None], baseline


def lower_bound(num_updates: int, config: Any) -> float:
    """The cross ratio's lower bound for update number m of a step, Eq. (14)."""
    return float(min(1.0, 1.0 - config.delta + num_updates * config.delta_step))


def loss(
    logps: Tensor,
    completion_mask: Tensor,
    source_mean_logp: Tensor,
    advantages: Tensor,
    is_self: Tensor,
    omega: Tensor,
    num_updates: int,
    config: Any,
    *,
    ref_logps: Tensor | None = None,
    source_lengths: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The HACPO loss of one micro-batch: Eq. (47) on own rollouts, Eqs. (10) to (14) and (50) on shared ones.

    logps, completion_mask, ref_logps: (b, T), the learner's tokens at the sampling temperature.  source_mean_logp,
    advantages, is_self, omega, source_lengths: (b,); omega is omega(source, learner).  num_updates: m, the learner's
    updates so far within the step.  config: epsilon, epsilon_high, delta, delta_step, alpha, cross_weight,
    cross_clip_gradient, ratio_length, beta; by default max_log_ratio is 10, clip_cross true, cross_kl false.
    denominator: rows planned for the whole mini-batch (default: b; the KL mean is then over the rows that have one), so
    that the sum over micro-batches does not depend on the split.
    Returns the scalar and per-row stats (b,): sequence_ratio, clipped_ratio, clip_side (-1 below, 0, 1 above the
    band), gradient_flows, weight, objective, kl.
    """
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    mask, logps = completion_mask.to(dtype), logps.to(dtype)
    advantages, omega = advantages.to(dtype), omega.to(dtype)
    source_mean_logp = source_mean_logp.to(dtype)
    log_ratio, saturated = common.log_ratio(logps, mask, source_mean_logp, is_self, source_lengths, config)
    # Eq. (47): min(s A, clip(s) A)
    own, own_clipped, own_side, own_flows = common.clipped_objective(
        log_ratio, advantages, 1 - config.epsilon, 1 + config.epsilon_high
    )
    cross, clipped, side, flows = _cross_term(log_ratio, advantages, omega, num_updates, config)
    objective = torch.where(is_self, own, cross)  # (b,)
    penalised = is_self | getattr(config, "cross_kl", False)  # (b,)
    total, kl = common.loss_and_kl(objective, logps, mask, penalised, config.beta, ref_logps, denominator)
    clipped, side = torch.where(is_self, own_clipped, clipped), torch.where(is_self, own_side, side)  # (b,) each
    flows = torch.where(is_self, own_flows, flows) & ~saturated & (objective != 0)  # (b,)
    return total, common.row_stats(log_ratio, clipped, side, flows, objective, kl)


def _cross_term(
    log_ratio: Tensor, advantages: Tensor, omega: Tensor, num_updates: int, config: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """sg(c)^(1 + alpha) omega A cross_weight log s, with the value of c^(1 + alpha) omega A cross_weight; (b,) each."""
    ratio = log_ratio.detach().exp()  # (b,)
    # Without the clip (the paper's ablation) no ratio is outside the band, and c is s.
    is_clipped = getattr(config, "clip_cross", True)
    low, high = (lower_bound(num_updates, config), 1.0) if is_clipped else (0.0, float("inf"))
    clipped = ratio.clamp(low, high)  # (b,)
    side = common.side_of_band(ratio, low, high)
    weight = clipped ** (1 + config.alpha) * omega * advantages * config.cross_weight  # (b,)
    if config.cross_clip_gradient == "zero":  # the paper: no gradient outside the band
        flows = side == 0
    elif config.cross_clip_gradient == "keep":
        flows = torch.ones_like(side, dtype=torch.bool)
    elif config.cross_clip_gradient == "sided":  # where the step moves s back towards the band
        flows = (side == 0) | ((side < 0) & (advantages > 0)) | ((side > 0) & (advantages < 0))
    else:
        raise ValueError(f"cross_clip_gradient {config.cross_clip_gradient!r}: zero, keep or sided is needed")
    # Eq. (12): d/dx [c sg(c)^alpha] = sg(c)^(1 + alpha) d/dx log s. In this form all modes log the paper's objective.
    objective = weight * (1 + torch.where(flows, log_ratio - log_ratio.detach(), 0.0))  # (b,)
    return objective, clipped, side, flows
