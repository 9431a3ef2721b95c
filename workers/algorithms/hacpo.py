"""HACPO, arXiv 2603.02604: its formulas. Pure tensor functions.

Agent indices: `learner` is the paper's k, `source` its j. ratio[a, b] is omega(a, b) = P[a] / P[b], clipped.
The settings are in hacpo_settings.py, what pages say of a weight in hacpo_words.py, Eqs. (8) and (9) in
base/capability.py, and Eqs. (11), (47) and the KL penalty, which other rules share, in base/tensors.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from workers.algorithms.base import tensors
from workers.algorithms.base.gates import GATES
from workers.algorithms.base.spec import AlgorithmSpec, LearnerAdvantages
from workers.algorithms.hacpo_settings import HacpoSettings
from workers.algorithms.hacpo_words import HacpoWords
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class Baselines(NamedTuple):
    """Baselines of one learner, (B,), and for which prompts the guard replaced Eq. (7), (B,) bool."""

    value: Tensor
    guarded: Tensor


def baselines(
    rewards: Tensor, ratio: Tensor, learner: int, *, valid: Tensor | None = None, reward_max: float = 1.0
) -> Baselines:
    """Capability-adjusted baselines of one learner, Eq. (7), with its two exceptions.

    rewards: (n, B, G).  ratio: (n, n).  valid: (n, B, G) bool.  reward_max: the verifier's upper bound.
    All rewards of a prompt equal: the baseline is that reward. Above reward_max, or below minus that (possible with the
    overlong penalty alone): the mean of the learner's own.
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
    scored = rewards.where(valid, 0.0)  # (n, B, G)
    count = valid.sum(dim=(0, 2))  # (B,)  N_q
    omega = ratio[learner].to(rewards.dtype)[:, None, None]  # (n, 1, 1)  omega(k, source)
    value = (omega * scored).sum(dim=(0, 2)) / count.clamp(min=1)  # (B,)
    uniform, highest = tensors.uniform_groups(rewards, valid)  # (B,) each
    own_count = valid[learner].sum(dim=1)  # (B,)
    own_mean = scored[learner].sum(dim=1) / own_count.clamp(min=1)  # (B,)
    joint_mean = scored.sum(dim=(0, 2)) / count.clamp(min=1)  # (B,)  where the learner has no valid rollout
    fallback = torch.where(own_count > 0, own_mean, joint_mean)  # (B,)
    guarded = ~uniform & (value.abs() > reward_max)  # (B,)
    value = torch.where(uniform, highest, torch.where(guarded, fallback, value))  # (B,)
    return Baselines(value, guarded)


def advantages(
    rewards: Tensor,
    ratio: Tensor,
    learner: int,
    *,
    valid: Tensor | None = None,
    reward_max: float = 1.0,
    scale_rewards: str = "group",
) -> LearnerAdvantages:
    """Advantages of every rollout as one learner sees them, Eq. (6): (r - mu_k) / (std_ddof1 of all + 1e-6).

    rewards: (n, B, G).  ratio: (n, n), Eq. (8).  valid: (n, B, G) bool, True = scored; an unscored rollout counts
    nowhere and gets advantage 0.  scale_rewards: the std is of the prompt's group, of the batch, or 1 (none).
    """
    valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
    mu, guarded = baselines(rewards, ratio, learner, valid=valid, reward_max=reward_max)  # (B,) each
    deviation = (rewards - mu[:, None]).where(valid, 0.0)  # (n, B, G)
    scale = tensors.reward_scale(rewards, valid, scale_rewards)  # (B,)
    return LearnerAdvantages(deviation / scale[:, None], mu, guarded)


def lower_bound(update_index: int, config: HacpoSettings) -> float:
    """The cross ratio's lower bound at update m of a step, Eq. (14)."""
    return float(min(1.0, 1.0 - config.delta + update_index * config.delta_step))


def cross_weights(
    ratio: Any, advantages: Any, omega: Any, update_index: int, config: HacpoSettings, ops: Any
) -> tensors.WeightTerms:
    """sg(c)^(1 + alpha) omega A cross_weight, the factor of log s in the loss: Eqs. (10), (12), (50); (b,) each.

    ops: torch or numpy.
    """
    # Without the clip (the paper's ablation) no ratio is outside the band, and c is s.
    low, high = (lower_bound(update_index, config), 1.0) if config.clip_cross else (0.0, float("inf"))
    clipped = ops.clip(ratio, low, high)  # (b,)
    side = tensors.side_of_band(ratio, low, high)
    weight = tensors.power(clipped, 1 + config.alpha) * omega * advantages * config.cross_weight  # (b,)
    flows = side == 0  # zero, the paper: no gradient outside the band
    if config.cross_clip_gradient == "keep":
        flows = flows | True
    elif config.cross_clip_gradient == "sided":  # where the step moves s back towards the band
        flows = flows | (side * advantages < 0)
    return tensors.WeightTerms(weight, clipped, side, flows)


class Hacpo(HacpoWords):
    """HACPO: capability-aware advantages, omega on shared gradients, exponential importance sampling, stepwise clip."""

    label: ClassVar[str] = "HACPO"
    summary: ClassVar[str] = "agents learn from each other's verified rollouts"

    name: Literal["hacpo"] = "hacpo"

    def filled(self, num_blocks: int, updates_per_block: int) -> AlgorithmSpec:
        n, m = num_blocks, updates_per_block
        scaled = self.cross_clip_schedule == "scaled" or (self.cross_clip_schedule == "auto" and n > 2)
        # With n agents the last update is number nM - 1 instead of 2M - 1: same last bound for every n.
        factor = (2 * m - 1) / (n * m - 1) if scaled and n * m > 1 else 1.0
        return super().filled(n, m).model_copy(update={"delta_step": self.delta_step * factor})

    def shared_advantages(
        self, rewards: Tensor, valid: Tensor, ratio: Tensor, learner: int, reward_max: float
    ) -> LearnerAdvantages:
        weights = ratio if self.weighs_baseline else torch.ones_like(ratio)  # -adv: a plain joint mean
        return advantages(
            rewards, weights, learner, valid=valid, reward_max=reward_max, scale_rewards=self.scale_rewards
        )

    def shared_weights(self, s: Any, advantages: Any, omega: Any, update_index: int, ops: Any) -> tensors.WeightTerms:
        if self.cross_gate != "hacpo":
            return super().shared_weights(s, advantages, omega, update_index, ops)
        return cross_weights(s, advantages, omega, update_index, self, ops)

    def gate(self, s: Any, sign: Any, update_index: int, ops: Any) -> Any:
        return GATES[self.cross_gate].value(s, sign, self.delta, ops)

    def shared_band(self, update_index: int) -> tuple[float, float] | None:
        return (lower_bound(update_index, self), 1.0) if self.clips_shared else None

    @property
    def band_moves(self) -> bool:
        return self.clips_shared
