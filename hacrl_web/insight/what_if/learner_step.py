"""What another omega changes in a learner's step: baselines and advantages, computed as the trainer does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hacrl_web.insight.what_if.rows import Block, Rows
from workers.algorithms.base.contribution import single
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract.advantages import (
    RewardGroup,
    advantages,
    baseline,
    capability,
    capability_ratio,
    divisor,
)

Shared = tuple[dict[int, float], dict[int, float]]  # baselines and divisors, by prompt
Ratios = dict[tuple[int, int], float]


@dataclass
class LearnerStep:
    """One learner's step under another omega, and the parts of its advantages.

    of_source: by source, the baselines and divisors (by prompt) for the advantages of its rollouts.
    """

    learner: int
    ratios: Ratios
    of_source: dict[int, Shared]

    def factor(self, source: int, rule: AlgorithmSpec) -> float:
        """Omega on a source's rollouts."""
        return self.ratios[source, self.learner] if rule.modulates_gradient and source != self.learner else 1.0

    def advantages(self, block: Block) -> list[float]:
        return self.of(block.source, block.rewards, block.prompts)

    def of(self, source: int, rewards: Sequence[float], prompts: Sequence[int]) -> list[float]:
        """Advantages of some of a source's rollouts."""
        mus, divisors = self.of_source[source]
        return advantages(rewards, [mus[prompt] for prompt in prompts], [divisors[prompt] for prompt in prompts])

    def num_unknown(self, block: Block) -> int:
        terms = self.of(block.source, block.silent_rewards, block.silent_prompts)
        return len(terms) - terms.count(0.0)


def changed_steps(rows: Rows, recorded_rule: AlgorithmSpec, rule: AlgorithmSpec) -> dict[tuple[int, int], LearnerStep]:
    """By step and learner, for the steps in which the rule changes an omega."""
    steps: dict[tuple[int, int], LearnerStep] = {}
    for step in rows.steps:
        after = ratios(rows, step, rule)
        if after != ratios(rows, step, recorded_rule):
            for learner in range(rows.num_agents):
                steps[step, learner] = learner_step_of(rows, step, learner, rule, after)
    return steps


def ratios(rows: Rows, step: int, rule: AlgorithmSpec) -> Ratios:
    """omega(a, b) of a step for all ordered pairs, Eqs. (8) and (9)."""
    agents, options = range(rows.num_agents), rule.capability_options
    if step <= options.warmup_steps:
        return {(a, b): 1.0 for a in agents for b in agents}
    strengths = [capability(rows.means_until(agent, step), options.window) for agent in agents]
    return {
        (a, b): 1.0 if a == b else capability_ratio(strengths[a], strengths[b], options) for a in agents for b in agents
    }


def learner_step_of(rows: Rows, step: int, learner: int, rule: AlgorithmSpec, omega: Ratios) -> LearnerStep:
    """As SharingSpec.objective computes it, with quarantine and all options."""
    cache: dict[tuple[int, tuple[int, ...]], Shared] = {}
    of_source = {}
    for source in range(rows.num_agents):
        # With cross_advantage "source" a shared rollout has its source's baseline.
        owner = source if isinstance(rule, SharingSpec) and rule.cross_advantage == "source" else learner
        # The advantages of an untrusted source are those that it would have if it were trusted.
        in_baseline = tuple(
            j for j in range(rows.num_agents) if (step, owner, j) not in rows.quarantined or j == source
        )
        if (owner, in_baseline) not in cache:
            cache[owner, in_baseline] = _baselines(rows, step, in_baseline, owner, rule, omega)
        of_source[source] = cache[owner, in_baseline]
    return LearnerStep(learner, omega, of_source)


def _baselines(
    rows: Rows, step: int, in_baseline: tuple[int, ...], learner: int, rule: AlgorithmSpec, omega: Ratios
) -> Shared:
    groups = rows.groups[step]
    is_plain = not rule.weighs_baseline or len(in_baseline) == 1
    factors = {j: 1.0 if is_plain else single(omega[learner, j]) for j in in_baseline}
    mus = {prompt: baseline(group, in_baseline, learner, factors) for prompt, group in groups.items()}
    place = (step, in_baseline, rule.scale_rewards)
    if place not in rows.divisors:
        rows.divisors[place] = _divisors(groups, in_baseline, rule.scale_rewards)
    return mus, rows.divisors[place]


def _divisors(groups: Mapping[int, RewardGroup], in_baseline: Sequence[int], mode: str) -> dict[int, float]:
    if mode == "batch":
        by = divisor([value for group in groups.values() for value in group.values(in_baseline)], mode)
        return dict.fromkeys(groups, by)
    return {prompt: divisor(group.values(in_baseline), mode) for prompt, group in groups.items()}
