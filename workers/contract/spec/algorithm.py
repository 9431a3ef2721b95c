"""RunSpec's algorithm section: how verified rollouts become updates, with its options and their numbers."""

from __future__ import annotations

from typing import Literal

from workers.contract.spec.fields import Count, Number, OwnNumber, SettingsSection, Share, setting

# Algorithms in which learners train on other agents' rollouts, unless `sharing` is off.
SHARING = ("hacpo", "naive_source", "naive_learner")
# Settings of shared rollouts: without effect in algorithms that do not share.
_OF_SHARED = frozenset({"sharing", "delta", "delta_step", "alpha", "overflow", "advantage", "modulate_gradient"})
_OF_SHARED |= {"clip_cross", "max_sources_per_learner", "on_missing_source", "peer_quarantine"}
_OF_SHARED_PREFIXES = ("cross_", "capability_", "ratio_", "quarantine_", "audit_")
# Of these, the settings without effect in naive sharing: of the stepwise clip, of omega, and the rest of HACPO.
_OF_CLIP = frozenset({"delta", "delta_step", "cross_clip_schedule", "cross_clip_gradient"})
_OF_OMEGA = frozenset({"capability_window", "ratio_min", "ratio_max", "ratio_warmup_steps"})
_OF_HACPO = frozenset({"alpha", "advantage", "modulate_gradient", "clip_cross", "cross_weight"})
# Defaults of (epsilon, epsilon_high). All but GRPO clip whole sequences, as GSPO does.
OWN_EPSILONS = {"grpo": (0.2, 0.28)}
SEQUENCE_EPSILONS = (3e-4, 4e-4)


class AlgorithmSpec(SettingsSection):
    """The algorithm, its options and its numbers. The loss reads them by attribute."""

    name: Literal["hacpo", "gspo", "gspox2", "grpo", "naive_source", "naive_learner"] = setting(
        "hacpo",
        help="hacpo: agents share rollouts; gspo: each agent alone; gspox2: alone with twice the rollouts and updates; "
        "grpo: alone, token-level ratio; naive_source, naive_learner: shared without HACPO's corrections, the old "
        "log-probability being the source's or the learner's own.",
        source="Sec. 3, Sec. 4.1",
        label="Algorithm",
    )
    sharing: bool = setting(
        True, help="Off: a sharing algorithm becomes n independent GSPO runs, bit for bit.", source="design"
    )
    epsilon: OwnNumber = setting(
        None, help="Lower clip of the self ratio; empty: 3e-4 (grpo: 0.2).", source="GSPO; Eq. (47)", gt=0, lt=1
    )
    epsilon_high: OwnNumber = setting(
        None, help="Upper clip of the self ratio; empty: 4e-4 (grpo: 0.28).", source="GSPO; Eq. (47)", gt=0, le=10
    )
    delta: Share = setting(
        0.2, help="The cross ratio's lower bound is 1 - delta at m = 0.", source="Eq. (14), Sec. 3.4"
    )
    delta_step: Share = setting(
        0.025, help="The lower bound rises by this with each update of a step.", source="Eq. (14), Table 5"
    )
    alpha: Number = setting(1.0, help="Exponent of the stop-gradient cross ratio.", source="Eq. (12)", ge=0, le=10)
    advantage: Literal["capability", "plain"] = setting(
        "capability",
        help="Baseline of shared groups: weighted by omega, or the plain joint mean (the paper's -adv).",
        source="Eq. (7); Sec. 4.3",
    )
    cross_advantage: Literal["learner", "source"] = setting(
        "learner",
        help="Whose baseline a shared rollout's advantage is measured against.",
        source="App. E; Eq. (10): source",
    )
    scale_rewards: Literal["group", "batch", "none"] = setting(
        "group",
        help="Divide advantages by the standard deviation of the prompt's rewards, of all rewards, or not at all.",
        source="Eq. (6); batch, none: TRL",
    )
    modulate_gradient: bool = setting(
        True, help="Weight shared rollouts by omega; off is the paper's -omega.", source="Eq. (10); Sec. 4.3"
    )
    clip_cross: bool = setting(
        True, help="Clip the ratio of shared rollouts; off is the paper's no_clip.", source="Eq. (50); Sec. 4.3"
    )
    cross_weight: Number = setting(
        1.0, help="Factor on every cross rollout; 1/(n-1) keeps many peers in check.", source="design", ge=0, le=10
    )
    cross_clip_gradient: Literal["zero", "keep", "sided"] = setting(
        "zero",
        help="Gradient outside the band: zero (the paper), keep, or sided: kept where the update still helps.",
        source="Eq. (50); keep, sided: ours",
    )
    cross_clip_schedule: Literal["auto", "raw", "scaled"] = setting(
        "auto",
        help="raw: Eq. (14); scaled: ends at the two-agent bound for every n; auto: scaled for n > 2.",
        source="design",
    )
    cross_order: Literal["auto", "mixed", "source_order"] = setting(
        "auto", help="Order of cross rollouts over the mini-batches; auto: mixed for n > 2.", source="design"
    )
    max_sources_per_learner: Count = setting(
        0,
        help="A learner trains on at most this many peers in a step, drawn anew each step; 0: all. Its baseline still "
        "includes all peers.",
        source="design",
        ge=0,
        le=7,
    )
    on_missing_source: Literal["error", "degrade"] = setting(
        "error",
        help="When an agent delivers no rollouts in a step: the run fails, or the others continue without them.",
        source="design",
    )
    peer_quarantine: bool = setting(
        False,
        help="A source whose smoothed gradient alignment with a learner is negative stops teaching it, and leaves its "
        "baseline, until it recovers.",
        source="ours; Theorem 4.3 says positive",
    )
    quarantine_interval: Count = setting(
        1,
        help="Steps between measurements of alignment for the quarantine (each costs as much as a step's updates).",
        source="ours",
        unit="steps",
        ge=1,
        le=100_000,
    )
    quarantine_smoothing: Number = setting(
        0.8,
        help="Weight of earlier alignments in the smoothed one, a mean over about 1 / (1 - this) of them.",
        source="ours",
        ge=0,
        lt=1,
    )
    quarantine_margin: Share = setting(
        0.05, help="A quarantine begins when the smoothed alignment is below minus this, ends above it.", source="ours"
    )
    audit_share: Share = setting(
        0.0,
        help="Share of each agent's rollouts whose rewards a second, independent verifier checks; 0: none. It decides "
        "clear cases only.",
        source="ours",
    )
    audit_threshold: Number = setting(
        0.2,
        help="Others stop learning from an agent when the second verifier contradicts more than this share of its "
        "rewards (smoothed), until the share has halved.",
        source="ours",
        gt=0,
        le=1,
    )
    audit_smoothing: Number = setting(
        0.8,
        help="Weight of earlier steps in the smoothed share, a mean over about 1 / (1 - this) steps.",
        source="ours",
        ge=0,
        lt=1,
    )
    ratio_length: Literal["own", "source"] = setting(
        "own", help="Length that divides the learner's log-probability of a cross rollout.", source="Eq. (11)"
    )
    max_log_ratio: Number = setting(
        10.0, help="Sequence ratios are clamped to exp(±this).", source="official recipe", gt=0, le=50
    )
    beta: Number = setting(
        1e-3, help="KL penalty against the starting model (self rollouts).", source="first public code", ge=0, le=10
    )
    cross_kl: bool = setting(
        False,
        label="KL on shared rollouts",
        help="Apply the KL penalty to shared rollouts too.",
        source="design; off: first public code",
    )
    capability_window: Count = setting(
        5, help="K: steps over which a capability is averaged.", source="Eq. (9)", ge=1, le=1000
    )
    ratio_min: Number = setting(0.1, help="Smallest capability ratio omega.", source="first public code", gt=0, le=1)
    ratio_max: Number = setting(10.0, help="Largest capability ratio omega.", source="first public code", ge=1, le=1000)
    ratio_warmup_steps: Count = setting(
        0, help="Omega is 1 during these first steps.", source="official recipe", ge=0, le=100_000
    )
    eos: Literal["map", "strip", "literal"] = setting(
        "map",
        label="End of sequence",
        help="How a shared rollout ends: with the learner's own EOS, without one, or with the source's text.",
        source="design: tokenizers and text",
    )
    overflow: Literal["drop", "truncate", "error"] = setting(
        "drop",
        help="What happens to a shared rollout longer than max_completion_length in the learner's tokens.",
        source="design: tokenizers and text",
    )

    @property
    def shares_rollouts(self) -> bool:
        """True if learners train on other agents' rollouts."""
        return self.name in SHARING and self.sharing

    @property
    def uses_omega(self) -> bool:
        """True if the capability ratio acts: in the baselines of Eq. (7), or in the weights of Eq. (10)."""
        acts = self.modulate_gradient or self.advantage == "capability"
        return self.name == "hacpo" and self.sharing and acts

    @property
    def clips_shared(self) -> bool:
        """True if HACPO's cross clip acts."""
        return self.name == "hacpo" and self.sharing and self.clip_cross

    def uses(self, name: str) -> bool:
        """False if a setting has no effect: GSPO has no delta, and neither has HACPO without its clip."""
        if not self.shares_rollouts:
            return not acts_on_shared(name) or (name == "sharing" and self.name in SHARING)
        if name in _OF_CLIP:
            return self.clips_shared
        if name in _OF_OMEGA:
            return self.uses_omega
        return self.name == "hacpo" or name not in _OF_HACPO


def acts_on_shared(name: str) -> bool:
    """True for a setting of shared rollouts: without sharing, its value does not change the run."""
    return name in _OF_SHARED or name.startswith(_OF_SHARED_PREFIXES)
