"""HACPO's settings with their texts, its ablations, and cautions of risky values; the formulas are in hacpo.py."""

from __future__ import annotations

from typing import ClassVar, Literal

from workers.algorithms.base.gated import GatedSpec
from workers.algorithms.base.spec import Ablation, CapabilityOptions
from workers.contract.settings import Count, If, Interval, Number, Part, Share, Slider, setting

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


class HacpoSettings(GatedSpec):
    """What can be set, and which parts act."""

    ablations: ClassVar[tuple[Ablation, ...]] = ABLATIONS

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
        CapabilityOptions.window,
        help="K: steps over which a capability is averaged.",
        source="Eq. (9)",
        needs=[OMEGA_ACTS],
        slider=Slider(1, 20, 1),
        ge=1,
        le=1000,
    )
    ratio_min: Part = setting(
        CapabilityOptions.ratio_min,
        label="Smallest capability ratio",
        help="Smallest capability ratio omega.",
        source="first public code",
        needs=[OMEGA_ACTS],
        slider=Slider(0.01, 1, 0.01),
    )
    ratio_max: Number = setting(
        CapabilityOptions.ratio_max,
        label="Largest capability ratio",
        help="Largest capability ratio omega.",
        source="first public code",
        needs=[OMEGA_ACTS],
        slider=Slider(1, 20, 0.1),
        ge=1,
        le=1000,
    )
    ratio_warmup_steps: Interval = setting(
        CapabilityOptions.warmup_steps,
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
        if (band := self.shared_band(last_update)) and band[0] >= 1:
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
