"""What another omega changes in a learner's step: baselines and advantages, computed as the trainer does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hacrl_web.insight.what_if.rows import ANY_PROMPT, Block, Rows
from workers.algorithms.base.contribution import single
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract.advantages import (
    RewardGroup,
    advantages,
    baseline,
    capability,
    capability_on_prompt,
    capability_ratio,
    divisor,
)

Shared = tuple[dict[int, float], dict[int, float]]  # baselines and divisors, by prompt
Ratios = dict[tuple[int, int], float]
RatiosOfPrompts = Mapping[int, Ratios]  # of the prompts that have their own
NO_PROMPT: RatiosOfPrompts = {}


@dataclass
class LearnerStep:
    """One learner's step under another omega, and the parts of its advantages.

    of_source: by source, the baselines and divisors (by prompt) for the advantages of its rollouts.
    """

    learner: int
    ratios: Ratios
    of_prompts: RatiosOfPrompts
    of_source: dict[int, Shared]

    def factor(self, source: int, prompt: int) -> float:
        """Omega of a source's rollouts of a prompt."""
        return self.of_prompts.get(prompt, self.ratios)[source, self.learner]

    def omega(self, block: Block, rule: AlgorithmSpec) -> float:
        if block.is_own or not rule.modulates_gradient:
            return 1.0
        return self.factor(block.source, block.prompts[0] if block.prompts else ANY_PROMPT)

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
        before, after = ((ratios(rows, step, one), ratios_of_prompts(rows, step, one)) for one in (recorded_rule, rule))
        if before != after:
            for learner in range(rows.num_agents):
                steps[step, learner] = learner_step_of(rows, step, learner, rule, *after)
    return steps


def ratios(rows: Rows, step: int, rule: AlgorithmSpec) -> Ratios:
    """omega(a, b) of a step for all ordered pairs, Eqs. (8) and (9)."""
    return _ratios(_capabilities(rows, step, rule), step, rule)


def ratios_of_prompts(rows: Rows, step: int, rule: AlgorithmSpec) -> RatiosOfPrompts:
    """The same by prompt, where the rule measures it so."""
    options = rule.capability_options
    if options.scope != "prompt":
        return {}
    overall = list(enumerate(_capabilities(rows, step, rule)))
    result = {}
    for prompt in rows.groups[step]:
        sums = [rows.positives.get((step, prompt, agent), (0.0, 0)) for agent, _ in overall]
        strengths = [capability_on_prompt(*sums[agent], of_agent, options.shrinkage) for agent, of_agent in overall]
        result[prompt] = _ratios(strengths, step, rule)
    return result


def _capabilities(rows: Rows, step: int, rule: AlgorithmSpec) -> list[float]:
    """P of each agent, Eq. (9)."""
    window = rule.capability_options.window
    return [capability(rows.means_until(agent, step), window) for agent in range(rows.num_agents)]


def _ratios(strengths: Sequence[float], step: int, rule: AlgorithmSpec) -> Ratios:
    agents, options = range(len(strengths)), rule.capability_options
    if step <= options.warmup_steps:
        return {(a, b): 1.0 for a in agents for b in agents}
    return {
        (a, b): 1.0 if a == b else capability_ratio(strengths[a], strengths[b], options) for a in agents for b in agents
    }


def learner_step_of(
    rows: Rows,
    step: int,
    learner: int,
    rule: AlgorithmSpec,
    omega: Ratios,
    of_prompts: RatiosOfPrompts = NO_PROMPT,
) -> LearnerStep:
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
            cache[owner, in_baseline] = _baselines(rows, step, in_baseline, owner, rule, omega, of_prompts)
        of_source[source] = cache[owner, in_baseline]
    return LearnerStep(learner, omega, of_prompts, of_source)


def _baselines(
    rows: Rows,
    step: int,
    in_baseline: tuple[int, ...],
    learner: int,
    rule: AlgorithmSpec,
    omega: Ratios,
    of_prompts: RatiosOfPrompts,
) -> Shared:
    groups = rows.groups[step]
    is_plain = not rule.weighs_baseline or len(in_baseline) == 1

    def factors(prompt: int) -> dict[int, float]:
        of_prompt = of_prompts.get(prompt, omega)
        return {j: 1.0 if is_plain else single(of_prompt[learner, j]) for j in in_baseline}

    mus = {prompt: baseline(group, in_baseline, learner, factors(prompt)) for prompt, group in groups.items()}
    place = (step, in_baseline, rule.scale_rewards)
    if place not in rows.divisors:
        rows.divisors[place] = _divisors(groups, in_baseline, rule.scale_rewards)
    return mus, rows.divisors[place]


def _divisors(groups: Mapping[int, RewardGroup], in_baseline: Sequence[int], mode: str) -> dict[int, float]:
    if mode == "batch":
        by = divisor([value for group in groups.values() for value in group.values(in_baseline)], mode)
        return dict.fromkeys(groups, by)
    return {prompt: divisor(group.values(in_baseline), mode) for prompt, group in groups.items()}
