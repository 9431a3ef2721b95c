"""The base of every algorithm in which learners train on other agents' rollouts: their settings, and advantages."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from workers.algorithms import gspo
from workers.algorithms.base import tensors
from workers.algorithms.base.spec import AlgorithmSpec, LearnerAdvantages, Objective
from workers.algorithms.base.tensors import MicroBatch
from workers.contract.settings import Batch, Count, Decay, If, Needs, Part, Share, setting
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class SharingSpec(AlgorithmSpec):
    """The settings of shared rollouts. Advantages are those against the plain mean of all agents' rewards."""

    can_share: ClassVar[bool] = True
    shares_baseline: ClassVar[bool] = True  # baselines average peers' rewards too, and judge their rollouts

    sharing: bool = setting(
        True, help="Off: a sharing algorithm becomes n independent GSPO runs, bit for bit.", source="design"
    )
    cross_advantage: Literal["learner", "source"] = setting(
        "learner",
        help="Whose baseline a shared rollout's advantage is measured against.",
        source="App. E; Eq. (10): source",
    )
    cross_order: Literal["auto", "mixed", "source_order"] = setting(
        "auto", help="Order of cross rollouts over the mini-batches; auto: mixed for n > 2.", source="design"
    )
    max_sources_per_learner: Count = setting(
        0,
        label="Most sources per learner",
        help="A learner trains on at most this many peers in a step, drawn anew each step; 0: all. Its baseline still "
        "includes all peers.",
        source="design",
        ge=0,
        le=7,
    )
    on_missing_source: Literal["error", "degrade"] = setting(
        "error",
        label="Without a peer's rollouts",
        help="When an agent delivers no rollouts in a step: the run fails, or the others continue without them.",
        source="design",
    )
    peer_quarantine: bool = setting(
        False,
        help="A source whose smoothed gradient alignment with a learner is negative stops teaching it, and leaves its "
        "baseline, until it recovers.",
        source="ours; Theorem 4.3 says positive",
    )
    quarantine_interval: Batch = setting(
        1,
        help="Steps between measurements of alignment for the quarantine (each costs as much as a step's updates).",
        source="ours",
        unit="steps",
        needs=[If("peer_quarantine", True)],
    )
    quarantine_smoothing: Decay = setting(
        0.8,
        help="Weight of earlier alignments in the smoothed one, a mean over about 1 / (1 - this) of them.",
        source="ours",
        needs=[If("peer_quarantine", True)],
    )
    quarantine_margin: Share = setting(
        0.05,
        help="A quarantine begins when the smoothed alignment is below minus this, ends above it.",
        source="ours",
        needs=[If("peer_quarantine", True)],
    )
    audit_share: Share = setting(
        0.0,
        help="Share of each agent's rollouts whose rewards get a second opinion; 0: none. Functions, judges and Python "
        "tests judge once more, which finds rewards that depend on chance (docs/verifiers.md).",
        source="ours",
    )
    audit_threshold: Part = setting(
        0.2,
        help="Others stop learning from an agent when second opinions contradict more than this share of its "
        "rewards (smoothed), until the share has halved.",
        source="ours",
        needs=[If("audit_share")],
    )
    audit_smoothing: Decay = setting(
        0.8,
        help="Weight of earlier steps in the smoothed share, a mean over about 1 / (1 - this) steps.",
        source="ours",
        needs=[If("audit_share")],
    )
    ratio_length: Literal["own", "source"] = setting(
        "own", help="Length that divides the learner's log-probability of a cross rollout.", source="Eq. (11)"
    )
    cross_kl: bool = setting(
        False,
        label="KL on shared rollouts",
        help="Apply the KL penalty to shared rollouts too.",
        needs=[If("beta")],
        source="design; off: first public code",
    )
    overflow: Literal["drop", "truncate", "error"] = setting(
        "drop",
        help="What happens to a shared rollout longer than max_completion_length in the learner's tokens.",
        source="design: tokenizers and text",
    )

    peer_thoughts: Literal["keep", "leave_out"] = setting(
        "keep",
        label="Thoughts of peers",
        help="A shared rollout with a thought, for a learner whose own chat template opens none. keep: the learner "
        "reads what opened the thought, and trains on the rest; leave_out: it trains on what follows the thought, and "
        "not on rollouts whose thought is unfinished.",
        source="design: tokenizers and text",
    )

    @property
    def shares_rollouts(self) -> bool:
        return self.sharing

    @classmethod
    def needs_of(cls, name: str) -> Needs:
        shared = name not in AlgorithmSpec.model_fields and name != "sharing"
        return [*([If("sharing", True)] if shared else []), *super().needs_of(name)]

    def penalises(self, is_self: bool) -> bool:
        return super().penalises(is_self or (self.sharing and self.cross_kl))

    # The step, in tensors

    def objective(
        self,
        rewards: Tensor,
        valid: Tensor,
        ratio: Tensor,
        reward_max: float = 1.0,
        trusted: Tensor | None = None,
    ) -> Objective:
        if not self.sharing:
            return super().objective(rewards, valid, ratio, reward_max, trusted)
        agents = torch.arange(len(rewards))
        result = Objective([], [], [], [])
        for learner in range(len(rewards)):
            sources = torch.ones_like(agents, dtype=torch.bool) if trusted is None else trusted[learner]  # (n,)
            view = (rewards, valid, ratio, learner, reward_max)
            advantages, baseline, guarded = self.learner_advantages(*view, sources)
            for source in agents[~sources].tolist():
                as_if_trusted = self.learner_advantages(*view, sources | (agents == source))
                advantages[source] = as_if_trusted.advantages[source]
            result.advantages.append(advantages)
            result.baselines.append(baseline)
            result.guarded.append(guarded)
            averaged = sources if self.shares_baseline else agents == learner  # (n,)
            result.in_baseline.append(valid & averaged[:, None, None])
        if self.shares_baseline and self.cross_advantage == "source":
            # Eq. (10) read literally: a shared rollout is compared with its source's baseline.
            by_source = torch.stack([result.advantages[source][source] for source in range(len(rewards))])  # (n, B, G)
            for learner, own in enumerate(result.advantages):
                result.advantages[learner] = by_source.clone()
                result.advantages[learner][learner] = own[learner]
        return result

    def learner_advantages(
        self, rewards: Tensor, valid: Tensor, ratio: Tensor, learner: int, reward_max: float, sources: Tensor
    ) -> LearnerAdvantages:
        if not self.sharing or (len(rewards) > 1 and sources.sum() == 1):  # only its own rollouts: GSPO, bit for bit
            return super().learner_advantages(rewards, valid, ratio, learner, reward_max, sources)
        return self.shared_advantages(rewards, valid & sources[:, None, None], ratio, learner, reward_max)

    def shared_advantages(
        self, rewards: Tensor, valid: Tensor, ratio: Tensor, learner: int, reward_max: float
    ) -> LearnerAdvantages:
        """One learner's advantages against the valid rollouts of all agents; here: against their plain mean."""
        advantages, baseline = tensors.joint_advantages(rewards, valid=valid, scale_rewards=self.scale_rewards)
        return LearnerAdvantages(advantages, baseline, torch.zeros_like(baseline, dtype=torch.bool))

    def loss(self, batch: MicroBatch, update_index: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        if not self.sharing:
            return gspo.loss(batch, self, denominator)
        return self.shared_loss(batch, update_index, denominator)

    def shared_loss(self, batch: MicroBatch, update_index: int, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
        """`loss` while rollouts are shared."""
        raise NotImplementedError
