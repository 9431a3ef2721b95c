"""Success transfer, after Mutual RL, arXiv 2605.07244: one success of a peer where the learner has none of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workers.algorithms.base.contribution import WeightedRow, WeightFactor
from workers.algorithms.base.gated import GatedSpec
from workers.algorithms.base.spec import AlgorithmSpec, LearnerAdvantages
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class SuccessTransfer(GatedSpec):
    """GSPO on the learner's own rollouts, and the likelihood of one peer's success where all of its own failed.

    A learner's update has grad mean log pi of that success, times `cross_weight` and G, so that it counts as much as
    a whole group with |A| = 1, whatever the source's probability of it. A success has the highest total reward.
    """

    label: ClassVar[str] = "Success transfer"
    unused: ClassVar[tuple[str, ...]] = ("cross_advantage",)
    summary: ClassVar[str] = "one correct answer of a peer, by likelihood, where all of a learner's own are wrong"
    shares_baseline: ClassVar[bool] = False
    advantage_help: ClassVar[str] = "G for the one success that is transferred, 0 for every other shared rollout"

    name: Literal["transfer"] = "transfer"

    def shared_advantages(
        self, rewards: Tensor, valid: Tensor, ratio: Tensor, learner: int, reward_max: float
    ) -> LearnerAdvantages:
        """GSPO's own advantages; G for one success of a peer on each prompt without a success of the learner's own.

        Which one rotates with the prompt's place in the batch.
        """
        sources = torch.arange(len(rewards)) == learner
        result = AlgorithmSpec.learner_advantages(self, rewards, valid, ratio, learner, reward_max, sources)
        is_success = (rewards >= reward_max) & valid  # (n, B, G)
        is_failed = valid[learner].any(dim=1) & ~is_success[learner].any(dim=1)  # (B,)
        for prompt in is_failed.nonzero().flatten().tolist():
            places = is_success[:, prompt].nonzero()  # (successes, 2): source, sample
            if len(places):
                source, sample = places[prompt % len(places)].tolist()
                result.advantages[source, prompt, sample] = rewards.shape[2]
        return result

    def gate(self, s: Any, sign: Any, update_index: int, ops: Any) -> Any:
        return 1.0

    @property
    def gate_help(self) -> str:
        return "1 for a transferred success, whatever its ratio"

    def explain(self, row: WeightedRow) -> Iterator[WeightFactor]:
        if row.is_own or not self.sharing:
            yield from super().explain(row)
        else:
            yield from self._last_steps(row, "")

    def equation(self, row: WeightedRow) -> str:
        if row.is_own or not self.sharing or not row.weight:
            return super().equation(row)
        return f"G · cross_weight = {row.advantage:.3g} · {self.cross_weight:.3g}"
