"""The base of every algorithm: the settings of its own term, and what trainer, pages and API ask it.

An algorithm is one file of this package (or of a folder in HACRL_ALGORITHMS) with one or more subclasses: their fields
are its settings, their methods its mathematics. docs/algorithms.md shows how to add one. The web reads these files too,
so torch is loaded at its first use only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from workers.algorithms.base import tensors
from workers.algorithms.base.contribution import RowWeights, WeightedRow, WeightFactor, own_steps, unclamped
from workers.contract.settings import Million, Needs, Number, OwnNumber, SettingsSection, setting, void_because
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

CAPABILITY_FLOOR = 1e-8  # Eq. (9)


@dataclass(frozen=True)
class Objective:
    """What one learner trains on: advantages (n, B, G), baselines (B,), and where the guard replaced them (B,) bool.

    in_baseline: (n, B, G) bool, the rollouts that the baseline averages: those of trusted sources. An untrusted
    source has the advantages that it would have if it were trusted too.
    """

    advantages: list[Tensor]
    baselines: list[Tensor]
    guarded: list[Tensor]
    in_baseline: list[Tensor]


class LearnerAdvantages(NamedTuple):
    """One learner's advantages (n, B, G) and baselines (B,), and which of these the guard replaced (B,) bool."""

    advantages: Tensor
    baseline: Tensor
    guarded: Tensor


@dataclass(frozen=True)
class CapabilityOptions:
    """How capabilities and their ratios are measured, Eqs. (8) and (9); the defaults of HACPO's settings."""

    window: int = 5
    ratio_min: float = 0.1
    ratio_max: float = 10.0
    warmup_steps: int = 0


@dataclass(frozen=True)
class Ablation:
    """An algorithm without one of its parts."""

    key: str
    label: str
    sentence: str
    overrides: dict[str, Any]


class AlgorithmSpec(SettingsSection):
    """The settings of an algorithm, and its mathematics. The losses read settings by attribute."""

    # What forms, boards and costs show of it.
    label: ClassVar[str]
    summary: ClassVar[str]
    # It samples this many times the rollouts, and its mini-batches have as many prompts fewer.
    rollouts_multiplier: ClassVar[int] = 1
    own_epsilons: ClassVar[tuple[float, float]] = (3e-4, 4e-4)  # where epsilon and epsilon_high are empty
    needs_token_logps: ClassVar[bool] = False  # the old log-probabilities token by token
    can_share: ClassVar[bool] = False  # it has the settings of SharingSpec
    unused: ClassVar[tuple[str, ...]] = ()  # settings of its base that mean nothing to it
    is_recorded_only: ClassVar[bool] = False  # a stand-in for one that left, see base/recorded.py
    ablations: ClassVar[tuple[Ablation, ...]] = ()

    name: str
    epsilon: OwnNumber = setting(
        None, help="Lower clip of the self ratio; empty: the algorithm's own.", source="GSPO; Eq. (47)", gt=0, lt=1
    )
    epsilon_high: OwnNumber = setting(
        None,
        label="Upper epsilon",
        help="Upper clip of the self ratio; empty: the algorithm's own.",
        source="GSPO; Eq. (47)",
        gt=0,
        le=10,
    )
    scale_rewards: Literal["group", "batch", "none"] = setting(
        "group",
        help="Divide advantages by the standard deviation of the prompt's rewards, of all rewards, or not at all.",
        source="Eq. (6); batch, none: TRL",
    )
    max_log_ratio: Number = setting(
        10.0,
        label="Largest log ratio",
        help="Sequence ratios are clamped to exp(±this).",
        source="official recipe",
        gt=0,
        le=50,
    )
    beta: Number = setting(
        0.0,
        help="KL penalty against the starting model (self rollouts). Above 0 each agent that trains all weights keeps "
        "a copy of that model, and rollouts without advantage are trained on too. The paper's code: 0.001.",
        source="ours",
        ge=0,
        le=10,
    )
    mask_truncated_completions: bool = setting(
        False,
        label="Leave out truncated completions",
        help="Answers that are cut at max_completion_length teach nothing; they still count in baselines.",
        source="TRL; DAPO, arXiv 2503.14476",
    )
    overlong_cache: Million = setting(
        0,
        label="Overlong penalty zone",
        help="Over this many last tokens before max_completion_length the reward of an answer falls linearly by 1, in "
        "training only; 0: no penalty.",
        source="DAPO, arXiv 2503.14476, Eq. (13); TRL's soft_punish_cache",
        unit="tokens",
    )
    eos: Literal["map", "strip", "literal"] = setting(
        "map",
        label="End of sequence",
        help="How a shared rollout ends: with the learner's own EOS, without one, or with the source's text.",
        source="design: tokenizers and text",
    )

    # Which of its parts act

    @property
    def shares_rollouts(self) -> bool:
        """True if learners train on other agents' rollouts."""
        return False

    @property
    def uses_omega(self) -> bool:
        """True if the capability ratio acts: in the baselines of Eq. (7), or in the weights of Eq. (10)."""
        return self.weighs_baseline or self.modulates_gradient

    @property
    def weighs_baseline(self) -> bool:
        """True if omega weighs the rewards of a baseline, Eq. (7)."""
        return False

    @property
    def modulates_gradient(self) -> bool:
        """True if omega weighs the gradient of shared rollouts, Eq. (10)."""
        return False

    @property
    def drops_outside_band(self) -> bool:
        """True if a shared rollout outside its clip band teaches nothing, whatever its advantage."""
        return False

    @property
    def rescores_shared(self) -> bool:
        """True if the old log-probability of a shared rollout is the learner's own at the start of the step."""
        return False

    @property
    def capability_options(self) -> CapabilityOptions:
        return CapabilityOptions()

    def uses(self, name: str) -> bool:
        """False if a setting has no effect at the present values of the others."""
        cls = type(self)
        if name not in cls.model_fields or name in cls.unused:
            return False
        return not void_because(cls.needs_of(name), lambda path: getattr(self, path, None))

    @classmethod
    def needs_of(cls, name: str) -> Needs:
        """What its other settings must be for this one to act: the field's own `needs`."""
        field = cls.model_fields.get(name)
        extra = field.json_schema_extra if field else None
        return extra.get("needs", ()) if isinstance(extra, dict) else ()  # type: ignore[return-value]

    def hypothetical_settings(self) -> list[str]:
        """The settings under which What-if can weigh recorded rollouts again."""
        extras = {name: field.json_schema_extra for name, field in type(self).model_fields.items()}
        return [name for name, extra in extras.items() if isinstance(extra, dict) and extra.get("hypothetical")]

    def penalises(self, is_self: bool) -> bool:
        """Whether the loss has a KL penalty on own rows, or on shared ones."""
        return self.beta > 0 and is_self

    def filled(self, num_blocks: int, updates_per_block: int) -> AlgorithmSpec:
        """These settings with every number filled in, as the loss reads them.

        num_blocks: agents whose rollouts a learner trains on.  updates_per_block: M, updates that each of them fills.
        """
        low, high = self.own_epsilons
        return self.model_copy(
            update={
                "epsilon": low if self.epsilon is None else self.epsilon,
                "epsilon_high": high if self.epsilon_high is None else self.epsilon_high,
            }
        )

    def cautions(self, last_update: int) -> list[tuple[str, str, str]]:
        """Settings that are allowed but probably a mistake: code, setting, message. Every number is filled in.

        last_update: m of a step's last update.
        """
        return []

    # The step, in tensors

    def objective(
        self,
        rewards: Tensor,
        valid: Tensor,
        ratio: Tensor,
        reward_max: float = 1.0,
        trusted: Tensor | None = None,
    ) -> Objective:
        """Every learner's advantages of a step. rewards, valid: (n, B, G).  ratio: omega, (n, n).

        rewards: the verifier's, 0 to reward_max, with the overlong penalty, at least -1.
        trusted: (n, n) bool, [learner, source], its diagonal True; None: every source is trusted.
        """
        agents = torch.arange(len(rewards))
        each = [
            self.learner_advantages(rewards, valid, ratio, learner, reward_max, agents == learner)
            for learner in range(len(rewards))
        ]
        return Objective(
            [one.advantages for one in each],
            [one.baseline for one in each],
            [one.guarded for one in each],
            [valid & (agents == learner)[:, None, None] for learner in range(len(rewards))],
        )

    def learner_advantages(
        self, rewards: Tensor, valid: Tensor, ratio: Tensor, learner: int, reward_max: float, sources: Tensor
    ) -> LearnerAdvantages:
        """The advantages of a learner that uses some sources, (n,) bool. Here: of its own rollouts alone, as GSPO."""
        advantages = torch.zeros_like(rewards)
        own, baseline = tensors.joint_advantages(
            rewards[learner][None], valid=valid[learner][None], scale_rewards=self.scale_rewards
        )
        advantages[learner] = own[0]
        return LearnerAdvantages(advantages, baseline, torch.zeros_like(baseline, dtype=torch.bool))

    def omega(self, ratio: Tensor, learner: int, source: int) -> Tensor:
        """The factor on the gradient of a source's rollouts, (). ratio: (n, n), Eq. (8)."""
        factor = ratio[source, learner]
        return factor if self.modulates_gradient and source != learner else torch.ones_like(factor)

    def loss(
        self, batch: tensors.MicroBatch, update_index: int, denominator: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The scalar and per-row stats (b,) of one micro-batch (tensors.row_stats). Every number is filled in.

        update_index: m, the learner's updates so far within the step.  denominator: rows planned for the mini-batch.
        """
        raise NotImplementedError

    # The same without torch, for the pages that explain a weight or compute it for other settings

    def own_band(self) -> tuple[float, float]:
        """The bounds of the ratio of own rollouts."""
        if self.epsilon is None or self.epsilon_high is None:
            raise ValueError("epsilon is empty: pass RunSpec.rule, in which every number is filled in")
        return 1 - self.epsilon, 1 + self.epsilon_high

    def shared_band(self, update_index: int) -> tuple[float, float] | None:
        """The bounds of the ratio of shared rollouts at update m of a step; None where nothing is clipped."""
        return None

    @property
    def band_moves(self) -> bool:
        """True if the band of shared rollouts depends on the update."""
        return False

    @property
    def shared_help(self) -> str:
        """A sentence under the histogram of shared ratios: what the rule does with them."""
        return ""

    def weigh(
        self,
        is_own: bool,
        update_index: int,
        ratios: Sequence[float],
        advantages: Sequence[float],
        omega: float = 1.0,
    ) -> RowWeights:
        """Weights of one source's rows in one update of a learner, in the loss's float32. Not for a ratio by token.

        ratios: s before clipping, as recorded.  advantages: A.  omega: of Eq. (8).
        """
        s, a = (np.asarray(values, dtype=np.float32) for values in (ratios, advantages))  # (b,) each
        if is_own or not self.shares_rollouts:
            rows = tensors.own_weights(s, a, *self.own_band(), np)
        else:
            rows = self.shared_weights(s, a, np.float32(omega), update_index, np)
        flows = rows.flows & unclamped(s, self.max_log_ratio)
        return RowWeights(rows.side.tolist(), np.where(flows, rows.weight, np.float32(0)).tolist())

    def shared_weights(self, s: Any, advantages: Any, omega: Any, update_index: int, ops: Any) -> tensors.WeightTerms:
        """The rule of shared rows, without a gradient; here: that of own ones. (b,) each.  ops: torch or numpy.

        s: the sequence ratio.  omega: of Eq. (8).  update_index: m.
        """
        return tensors.own_weights(s, advantages, *self.own_band(), ops)

    def explain(self, row: WeightedRow) -> Iterator[WeightFactor]:
        """The steps from s to the weight of a row. The row has an s and an update."""
        weight = self._weight_of(row)
        return own_steps(row, self.own_band(), is_free=weight != 0)

    def equation(self, row: WeightedRow) -> str:
        """The equation of a weight with its numbers; empty without an s."""
        if row.sequence_ratio is None:
            return ""
        if not row.weight:
            return "0: min(s A, c A) is c A"
        symbol, value = ("", "") if row.importance == 1 else (" · w", f" · {row.importance:.3g}")
        return f"s · A{symbol} = {row.sequence_ratio:.6g} · {row.advantage:.3g}{value}"

    def _weight_of(self, row: WeightedRow) -> float:
        s, update_index = row.sequence_ratio or 0.0, row.update_index or 0
        return self.weigh(row.is_own, update_index, [s], [row.scaled_advantage], row.omega).weights[0]
