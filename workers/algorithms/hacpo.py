"""HACPO, arXiv 2603.02604: capability-adjusted advantages and the loss. Pure tensor functions.

Agent indices: `learner` is the paper's k, `source` its j. ratio[a, b] is omega(a, b) = P[a] / P[b], clipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from workers.algorithms.base import tensors
from workers.algorithms.base.capability import CapabilityTracker as CapabilityTracker  # part of HACPO's surface
from workers.algorithms.base.contribution import WeightedRow, WeightFactor
from workers.algorithms.base.gated import GatedSpec
from workers.algorithms.base.gates import GATES
from workers.algorithms.base.spec import Ablation, AlgorithmSpec, CapabilityOptions, LearnerAdvantages
from workers.contract.settings import Count, If, Interval, Number, Part, Share, Slider, setting
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


# Sec. 4.3 of the paper, and its two limits: no clip at all, and nothing shared.
ABLATIONS = (
    Ablation(
        "no_adv",
        "No capability-aware advantage (−adv)",
        "The baseline of shared groups is their plain mean, not weighed by omega.",
        {"advantage": "plain"},
    ),
    Ablation(
        "no_omega",
        "No omega on gradients (−omega)",
        "A shared rollout weighs the same whoever wrote it.",
        {"modulate_gradient": False},
    ),
    Ablation(
        "no_exponent",
        "No exponential importance sampling (alpha 0)",
        "The cross ratio counts once, without its stop-gradient power.",
        {"alpha": 0.0},
    ),
    Ablation(
        "no_stepwise",
        "No stepwise clipping (delta_step 0)",
        "The lower bound of the cross ratio stays where it begins in each step.",
        {"delta_step": 0.0},
    ),
    Ablation("no_clip", "No clip of shared rollouts", "The cross ratio may be anything.", {"clip_cross": False}),
    Ablation(
        "own_only",
        "Own rollouts only (n = own)",
        "Nothing is shared: each agent learns alone, which is GSPO.",
        {"sharing": False},
    ),
)

# What the settings of omega, and those of the stepwise clip, need to act.
OMEGA_ACTS = [If("modulate_gradient", True), If("advantage", "capability")]
CLIPS = [If("cross_gate", "hacpo"), If("clip_cross", True)]


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
    return deviation / tensors.reward_scale(rewards, valid, scale_rewards, epsilon)[:, None], baseline


def lower_bound(update_index: int, config: Any) -> float:
    """The cross ratio's lower bound for update number m of a step, Eq. (14)."""
    return float(min(1.0, 1.0 - config.delta + update_index * config.delta_step))


def loss(
    logps: Tensor,
    completion_mask: Tensor,
    source_mean_logp: Tensor,
    advantages: Tensor,
    is_self: Tensor,
    omega: Tensor,
    update_index: int,
    config: Any,
    *,
    ref_logps: Tensor | None = None,
    source_lengths: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The HACPO loss of one micro-batch: Eq. (47) on own rollouts, Eqs. (10) to (14) and (50) on shared ones.

    logps, completion_mask, ref_logps: (b, T), the learner's tokens at the sampling temperature.  source_mean_logp,
    advantages, is_self, omega, source_lengths: (b,); omega is omega(source, learner).  update_index: m, the learner's
    updates so far within the step.  config: epsilon, epsilon_high, delta, delta_step, alpha, cross_weight,
    cross_clip_gradient, ratio_length, beta; by default max_log_ratio is 10, clip_cross true, cross_kl false.
    denominator: rows planned for the whole mini-batch (default: b; the KL mean is then over the rows that have one), so
    that the sum over micro-batches does not depend on the split.
    Returns the scalar and per-row stats (b,): sequence_ratio, clipped_ratio, clip_side (-1 below, 0, 1 above the
    band), gradient_flows, weight, objective, kl.
    """
    return tensors.own_and_cross_loss(
        *(logps, completion_mask, source_mean_logp, advantages, is_self, omega, config),
        lambda s, advantages, omega: cross_weights(s, advantages, omega, update_index, config, torch),
        ref_logps=ref_logps,
        source_lengths=source_lengths,
        denominator=denominator,
    )


def cross_weights(
    ratio: Any, advantages: Any, omega: Any, update_index: int, config: Any, ops: Any
) -> tensors.WeightTerms:
    """sg(c)^(1 + alpha) omega A cross_weight, the factor of log s in the loss; (b,) each. ops: torch or numpy."""
    # Without the clip (the paper's ablation) no ratio is outside the band, and c is s.
    is_clipped = getattr(config, "clip_cross", True)
    low, high = (lower_bound(update_index, config), 1.0) if is_clipped else (0.0, float("inf"))
    clipped = ops.clip(ratio, low, high)  # (b,)
    side = tensors.side_of_band(ratio, low, high)
    weight = tensors.power(clipped, 1 + config.alpha) * omega * advantages * config.cross_weight  # (b,)
    flows = side == 0  # zero, the paper: no gradient outside the band
    if config.cross_clip_gradient == "keep":
        flows = flows | True
    elif config.cross_clip_gradient == "sided":  # where the step moves s back towards the band
        flows = flows | (side * advantages < 0)
    elif config.cross_clip_gradient != "zero":
        raise ValueError(f"cross_clip_gradient {config.cross_clip_gradient!r}: zero, keep or sided is needed")
    return tensors.WeightTerms(weight, clipped, side, flows)


class Hacpo(GatedSpec):
    """HACPO: capability-aware advantages, omega on shared gradients, exponential importance sampling, stepwise clip."""

    label: ClassVar[str] = "HACPO"
    summary: ClassVar[str] = "agents learn from each other's verified rollouts"
    ablations: ClassVar[tuple[Ablation, ...]] = ABLATIONS

    name: Literal["hacpo"] = "hacpo"
    delta: Share = setting(
        0.2,
        help="The cross ratio's lower bound is 1 − delta at m = 0.",
        source="Eq. (14), Sec. 3.4",
        needs=[If("cross_gate", "hacpo", "signed"), [If("clip_cross", True), If("cross_gate", "signed")]],
        slider=Slider(0, 1, 0.01),
    )
    delta_step: Share = setting(
        0.025,
        help="The lower bound rises by this with each update of a step.",
        source="Eq. (14), Table 5",
        needs=CLIPS,
        slider=Slider(0, 0.2, 0.005),
    )
    alpha: Number = setting(
        1.0,
        help="Exponent of the stop-gradient cross ratio.",
        source="Eq. (12)",
        needs=[If("cross_gate", "hacpo")],
        slider=Slider(0, 5, 0.05),
        ge=0,
        le=10,
    )
    advantage: Literal["capability", "plain"] = setting(
        "capability",
        help="Baseline of shared groups: weighted by omega, or the plain joint mean (the paper's -adv).",
        source="Eq. (7); Sec. 4.3",
    )
    modulate_gradient: bool = setting(
        True, help="Weight shared rollouts by omega; off is the paper's -omega.", source="Eq. (10); Sec. 4.3"
    )
    cross_gate: Literal["hacpo", "signed", "gamma"] = setting(
        "hacpo",
        help="Which shared rollouts teach, by their ratio and the sign of their advantage. hacpo: the stepwise clip, "
        "with alpha; the others replace both: docs/algorithms.md has their formulas.",
        source="Eqs. (12), (14); others: docs/algorithms.md",
        is_hypothetical=True,
    )
    clip_cross: bool = setting(
        True,
        help="Clip the ratio of shared rollouts; off is the paper's no_clip.",
        source="Eq. (50); Sec. 4.3",
        needs=[If("cross_gate", "hacpo")],
    )
    cross_clip_gradient: Literal["zero", "keep", "sided"] = setting(
        "zero",
        help="Gradient outside the band: zero (the paper), keep, or sided: kept where the update still helps.",
        source="Eq. (50); keep, sided: ours",
        needs=CLIPS,
        is_hypothetical=True,
    )
    cross_clip_schedule: Literal["auto", "raw", "scaled"] = setting(
        "auto",
        help="raw: Eq. (14); scaled: ends at the two-agent bound for every n; auto: scaled for n > 2.",
        source="design",
        needs=CLIPS,
    )
    capability_window: Count = setting(
        5,
        help="K: steps over which a capability is averaged.",
        source="Eq. (9)",
        needs=[OMEGA_ACTS],
        slider=Slider(1, 20, 1),
        ge=1,
        le=1000,
    )
    ratio_min: Part = setting(
        0.1,
        label="Smallest capability ratio",
        help="Smallest capability ratio omega.",
        source="first public code",
        needs=[OMEGA_ACTS],
        slider=Slider(0.01, 1, 0.01),
    )
    ratio_max: Number = setting(
        10.0,
        label="Largest capability ratio",
        help="Largest capability ratio omega.",
        source="first public code",
        needs=[OMEGA_ACTS],
        slider=Slider(1, 20, 0.1),
        ge=1,
        le=1000,
    )
    ratio_warmup_steps: Interval = setting(
        0,
        label="Warm-up of the capability ratio",
        help="Omega is 1 during these first steps.",
        source="official recipe",
        needs=[OMEGA_ACTS],
    )

    @property
    def weighs_baseline(self) -> bool:
        return self.sharing and self.advantage == "capability"

    @property
    def modulates_gradient(self) -> bool:
        return self.sharing and self.modulate_gradient

    @property
    def clips_shared(self) -> bool:
        """True if the stepwise clip acts."""
        return self.sharing and self.clip_cross and self.cross_gate == "hacpo"

    @property
    def drops_outside_band(self) -> bool:
        return self.clips_shared and self.cross_clip_gradient == "zero"

    @property
    def capability_options(self) -> CapabilityOptions:
        return CapabilityOptions(self.capability_window, self.ratio_min, self.ratio_max, self.ratio_warmup_steps)

    def filled(self, num_blocks: int, updates_per_block: int) -> AlgorithmSpec:
        n, m = num_blocks, updates_per_block
        scaled = self.cross_clip_schedule == "scaled" or (self.cross_clip_schedule == "auto" and n > 2)
        # With n agents the last update is number nM - 1 instead of 2M - 1: same last bound for every n.
        factor = (2 * m - 1) / (n * m - 1) if scaled and n * m > 1 else 1.0
        return super().filled(n, m).model_copy(update={"delta_step": self.delta_step * factor})

    def cautions(self, last_update: int) -> list[tuple[str, str, str]]:
        if not self.clips_shared:
            return []
        result = []
        if self.delta > 0.5:
            delta, bound = f"{self.delta:.3g}", f"{1 - self.delta:.3g}"
            message = (
                f"A delta of {delta} means a lower bound of {bound}. The paper's Table 5 prints lower bounds under "
                f'"delta": its {delta} is a delta of {bound} here.'
            )
            result.append(("delta_above_half", "delta", message))
        if lower_bound(last_update, self) >= 1:
            effect = {
                "zero": "teaches nothing",
                "keep": "weighs every shared rollout as if its ratio were 1",
                "sided": "teaches only where a step moves the ratio towards 1",
            }[self.cross_clip_gradient]
            message = (
                f"The last cross mini-batch of each step has a lower bound of 1 and {effect}: lower delta_step or "
                "raise mini_batch_size."
            )
            result.append(("last_bound_reaches_one", "delta_step", message))
        return result

    def shared_advantages(
        self, rewards: Tensor, valid: Tensor, ratio: Tensor, learner: int, reward_max: float
    ) -> LearnerAdvantages:
        weights = ratio if self.weighs_baseline else torch.ones_like(ratio)  # -adv: a plain joint mean
        joint = baselines(rewards, weights, learner, valid=valid, reward_max=reward_max)
        value, baseline = advantages(
            *(rewards, weights, learner), valid=valid, scale_rewards=self.scale_rewards, baseline=joint.value
        )
        return LearnerAdvantages(value, baseline, joint.guarded)

    def shared_weights(self, s: Any, advantages: Any, omega: Any, update_index: int, ops: Any) -> tensors.WeightTerms:
        if self.cross_gate != "hacpo":
            return super().shared_weights(s, advantages, omega, update_index, ops)
        return cross_weights(s, advantages, omega, update_index, self, ops)

    # The same without torch

    def _clips(self, is_own: bool) -> bool:
        """True for rows of HACPO's own term, Eq. (12): shared ones, unless another gate replaces it."""
        return not is_own and self.sharing and self.cross_gate == "hacpo"

    def gate(self, s: Any, sign: Any, update_index: int, ops: Any) -> Any:
        return GATES[self.cross_gate].value(s, sign, self.delta, ops)

    @property
    def gate_help(self) -> str:
        return f"{self.cross_gate}: {GATES[self.cross_gate].formula}"

    def shared_band(self, update_index: int) -> tuple[float, float] | None:
        return (lower_bound(update_index, self), 1.0) if self.clips_shared else None

    @property
    def band_moves(self) -> bool:
        return self.clips_shared

    @property
    def shared_help(self) -> str:
        if self.cross_gate != "hacpo":
            return super().shared_help
        if not self.clip_cross:
            return "This run clips no shared rollouts (clip_cross is off)."
        text = "The steps underneath are the band [1 − δ + m·δ_step, 1], Eq. (14): it narrows with each update m."
        if self.cross_clip_gradient == "zero":
            return text
        return f"{text} With cross_clip_gradient {self.cross_clip_gradient}, rollouts outside the band can teach too."

    def explain(self, row: WeightedRow) -> Iterator[WeightFactor]:
        """Eqs. (10), (12), (14) and (50)."""
        if not self._clips(row.is_own):
            yield from super().explain(row)
            return
        s, m = row.sequence_ratio or 0.0, row.update_index or 0
        low, high = self.shared_band(m) or (0.0, inf)
        clipped = min(max(s, low), high)
        side = (s > high) - (s < low)
        where = "inside the band" if not side else "below the band" if side < 0 else "above the band"
        bounds = f"[{low:.4g}, {high:.4g}]: 1 - delta + m * delta_step with m = {m}" if self.clip_cross else "no clip"
        yield "sequence ratio", "s", s, "the learner's probability of the text over the source's, per token; Eq. (11)"
        yield "clip", "c / s", clipped / s if s else 0.0, f"{where} {bounds}"
        yield "exponent", "c^α", clipped**self.alpha, f"alpha = {self.alpha:g}; Eq. (12)"
        obstacle = f"{where}: no gradient (cross_clip_gradient {self.cross_clip_gradient})"
        yield from self._last_steps(row, obstacle if side else "")

    def equation(self, row: WeightedRow) -> str:
        if not self._clips(row.is_own):
            return super().equation(row)
        if row.sequence_ratio is None or row.clipped_ratio is None:
            return ""
        if not row.weight:
            return "no gradient flows: outside the band, or A is 0"
        return self._product("c^(1+α)", f"{row.clipped_ratio:.3g}^{1 + self.alpha:.3g}", row)
