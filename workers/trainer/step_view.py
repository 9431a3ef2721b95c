"""Step 3 of Algorithm 1: what every learner makes of a step's rollouts, of the sources that it trusts now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.agents.messages import Generated, Row
from workers.agents.objective import Judgement, judge
from workers.contract.spec.run import RunSpec
from workers.trainer.plan import build_mini_batches, quarantined_rows
from workers.trainer.quarantine import Trust
from workers.trainer.scoring import Scores
from workers.verifiers.service import REWARD_MAX


@dataclass(frozen=True)
class StepView:
    """By learner: whom it trusts, its judgement, its mini-batches, and the rollouts of those that it does not trust."""

    trusted: list[list[bool]]
    judged: Judgement
    plans: list[list[list[Row]]]
    quarantined: list[list[Row]]


def view_step(
    spec: RunSpec, step: int, generated: Sequence[Generated], scores: Scores, ratio: Tensor, trust: Trust
) -> StepView:
    """step: 0, 1, ...  ratio: (n, n), omega."""
    trusted = [trust.trusted(learner) for learner in range(len(spec.agents))]
    judged = judge(spec.algorithm, scores.rewards, scores.valid, ratio, REWARD_MAX, torch.tensor(trusted))
    plans, quarantined = [], []
    for learner, advantages in enumerate(judged.advantages):
        view = (learner, generated, advantages, scores.valid, ratio, trusted[learner])
        plans.append(build_mini_batches(spec, step, *view))
        quarantined.append(quarantined_rows(spec, *view))
    return StepView(trusted, judged, plans, quarantined)
