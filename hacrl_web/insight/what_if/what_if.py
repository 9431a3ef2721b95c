"""What-if: recorded rollouts, weighed again with hypothetical settings of the run's algorithm.

First-order: the rollouts, their rewards and their ratios s stay as recorded. Another exponent, bound or clip mode
changes weights only; another capability window or clamp changes omega too, and with it baselines and A.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from hacrl_web.insight.what_if.rows import ANY_PROMPT, NEAR, Block, OutcomeCounts, RecordedCheck, Rows, read
from hacrl_web.runs.models import Run
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.web.errors import FieldErrors, plain_errors
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
from workers.contract.spec.run import RunSpec

NO_WEIGHT = (
    "Every weight on record for these steps is 0, so there are no shares to show: no rollout taught anything. "
    "This happens if all answers to a question get the same reward, because each advantage is then 0."
)
NOT_VARIED = "What-if does not vary this setting."
NO_EFFECT = "It has no effect in this run."
BY_SUBJECT = "It cannot be varied in this run: omega acts by subject, and the records hold no omega by subject."


@dataclass
class LearnerSource:
    """One learner's rows from one source (itself included) over the steps, counted.

    by_sign: by the sign of A (-1, 1): evaluated, below, above the band.  unknown: rows that would have an s, but for
    which none is recorded, because their A was 0.
    """

    rows: int = 0
    evaluated: int = 0
    lower: int = 0
    upper: int = 0
    used: int = 0
    weight: float = 0.0  # sum of |weight|
    unknown: int = 0
    omegas: list[float] = field(default_factory=list)
    by_sign: dict[int, list[int]] = field(default_factory=lambda: {-1: [0, 0, 0], 1: [0, 0, 0]})

    def add(self, counts: OutcomeCounts, *, with_zero: bool, is_replayed: bool = False) -> None:
        """Count evaluated rows; of replayed ones, only the weight counts.

        with_zero: rows of A = 0 are evaluated too, for the KL penalty.
        """
        self.weight += counts.weight
        if is_replayed:
            return
        for (side, sign), count in counts.places.items():
            if sign == 0 and not with_zero:
                continue
            self.evaluated += count
            self.lower += count * (side < 0)
            self.upper += count * (side > 0)
            if sign:
                of_sign = self.by_sign[sign]
                of_sign[0] += count
                of_sign[1] += count * (side < 0)
                of_sign[2] += count * (side > 0)
        self.used += counts.used

    def as_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("rows", "evaluated", "lower", "upper", "used", "unknown")},
            "weight": self.weight,
            "positive": self.by_sign[1],
            "negative": self.by_sign[-1],
            "omega": sum(self.omegas) / len(self.omegas) if self.omegas else None,
            "omega_range": [min(self.omegas), max(self.omegas)] if self.omegas else None,
        }


Pairs = dict[tuple[int, int], LearnerSource]  # (learner, source)
Shared = tuple[dict[int, float], dict[int, float]]  # baselines and divisors, by prompt
Ratios = dict[tuple[int, int], float]
RatiosOfPrompts = Mapping[int, Ratios]  # of the prompts that have their own
NO_PROMPT: RatiosOfPrompts = {}


def why_nothing(spec: RunSpec) -> str:
    """Why none of the settings acts on this run; empty if they do."""
    rule = spec.algorithm
    if not rule.hypothetical_settings():
        return f"This run follows {rule.name}, which has no setting that weighs shared rollouts."
    if not rule.shares_rollouts or len(spec.agents) == 1:
        return "No rollout was shared in this run: every weight is that of an own rollout, on which none of these acts."
    return ""


def what_if_answer(
    run: Run, first: int, last: int, settings: Mapping[str, Any], *, checks: bool = False
) -> dict[str, Any]:
    """Recorded and hypothetical numbers of every ordered pair. checks: with RecordedCheck. Error: FieldErrors."""
    began = time.perf_counter()
    spec = stored_spec(run)
    nothing = why_nothing(spec)
    if nothing:
        return {"nothing": nothing, "pairs": [], "steps": 0}
    if last < first:
        raise FieldErrors.single("invalid", "The last step must not be before the first.", "last")
    if constants := [name for name in settings if is_constant(name, spec)]:
        raise FieldErrors.single("invalid", why_constant(constants[0], spec), constants[0])
    try:
        other = with_hypothetical(spec, settings)
    except ValidationError as error:
        raise FieldErrors(plain_errors(error)) from error
    options = spec.algorithm.capability_options
    rows = read(run, first, last, options.window, spec.overlong, by_prompt=options.scope != "run")
    before, after = recorded(rows, spec.rule), hypothetical(rows, spec.rule, other.rule)
    if checks and rows.steps and rows.check is None:
        rows.check = check_recorded(rows, spec.rule)
    return {
        "nothing": "",
        "agents": run.agent_names,
        "first": rows.steps[0] if rows.steps else None,
        "last": rows.steps[-1] if rows.steps else None,
        "steps": len(rows.steps),
        "is_thinned": rows.is_thinned,
        "rows": rows.num_rows,
        "pairs": _pairs_answer(before, after),
        "bounds": [_bounds(one) for one in (spec, other)],
        "cautions": [
            *([NO_WEIGHT] if rows.steps and not any(pair.weight for pair in before.values()) else []),
            *(caution.message for caution in other.cautions() if caution not in spec.cautions()),
        ],
        "check": rows.check if checks else None,
        "clone": _clone_query(spec, other),
        "elapsed_ms": round(1000 * (time.perf_counter() - began), 1),
    }


def is_constant(name: str, spec: RunSpec) -> bool:
    """True for a setting of the run's algorithm with whose other values What-if cannot weigh its rollouts."""
    return name in type(spec.algorithm).model_fields and name not in spec.algorithm.hypothetical_settings()


def why_constant(name: str, spec: RunSpec) -> str:
    """Why What-if cannot vary a setting of the run's algorithm."""
    if name not in AlgorithmSpec.hypothetical_settings(spec.algorithm):
        return NOT_VARIED
    return BY_SUBJECT if spec.algorithm.capability_options.scope == "subject" else NO_EFFECT


def with_hypothetical(spec: RunSpec, settings: Mapping[str, Any]) -> RunSpec:
    """The run's spec with other values. Error: pydantic.ValidationError."""
    values = spec.model_dump(mode="json")
    values["algorithm"] |= settings
    return RunSpec.model_validate(values)


def _pairs_answer(before: Pairs, after: Pairs) -> list[dict[str, Any]]:
    totals = [
        {learner: sum(pair.weight for (k, _), pair in pairs.items() if k == learner) for learner, _ in pairs}
        for pairs in (before, after)
    ]
    return [
        {
            "learner": place[0],
            "source": place[1],
            **{
                name: pairs[place].as_dict() | {"share": pairs[place].weight / of[place[0]] if of[place[0]] else None}
                for name, pairs, of in (("recorded", before, totals[0]), ("hypothetical", after, totals[1]))
            },
        }
        for place in before
    ]


def _bounds(spec: RunSpec) -> dict[str, float | None]:
    """The cross band's lower bound at a step's first and last cross update, Eq. (14); None without a clip."""
    # Own mini-batches come before.
    first, last = (spec.rule.shared_band(update) for update in (spec.updates_per_block, spec.last_update))
    return {
        "first": first[0] if first else None,
        "last": last[0] if last else None,
        "delta_step": getattr(spec.rule, "delta_step", None),
    }


def _clone_query(spec: RunSpec, other: RunSpec) -> str:
    """The query that opens the clone form with the settings that differ."""
    changed = {
        f"algorithm.{name}": getattr(other.algorithm, name)
        for name in spec.algorithm.hypothetical_settings()
        if getattr(other.algorithm, name) != getattr(spec.algorithm, name)
    }
    return urlencode(changed)


def recorded(rows: Rows, rule: AlgorithmSpec) -> Pairs:
    """The sums as the trainer recorded them."""
    pairs = _pairs(rows)
    for block in rows.blocks:
        with_zero = rule.penalises(block.is_own)
        pairs[block.learner, block.source].add(
            block.recorded_counts, with_zero=with_zero, is_replayed=block.is_replayed
        )
    for (_, learner, source), omegas in rows.omegas.items():
        pairs[learner, source].omegas += omegas.values()
    return pairs


def hypothetical(rows: Rows, recorded_rule: AlgorithmSpec, rule: AlgorithmSpec) -> Pairs:
    """The sums of the same rollouts under another rule."""
    pairs = _pairs(rows)
    is_same = recorded_rule.capability_options == rule.capability_options
    changed = {} if is_same else _changed_steps(rows, recorded_rule, rule)
    for block in rows.blocks:
        learner_step = None if block.is_replayed else changed.get((block.step, block.learner))
        pair = pairs[block.learner, block.source]
        with_zero = rule.penalises(block.is_own)
        if learner_step is None and block.is_own:  # no hypothetical setting acts on it
            pair.add(block.recorded_counts, with_zero=with_zero)
            continue
        advantages: Sequence[float] = block.advantages
        signs, omega = block.signs, block.omega
        if learner_step is not None:
            advantages, omega = learner_step.advantages(block), learner_step.omega(block, rule)
            signs = [(a > 0) - (a < 0) for a in advantages]
            pair.unknown += learner_step.num_unknown(block)
        place = (block.is_own, block.mini_batch, block.ratios, block.weighed(advantages), omega)
        sides, weights = rule.weigh(*place, block.starts)
        pair.add(OutcomeCounts.of(sides, signs, weights), with_zero=with_zero, is_replayed=block.is_replayed)
    for (step, learner, source), omegas in rows.omegas.items():
        learner_step = changed.get((step, learner))
        if learner_step is not None and rule.modulates_gradient and learner != source:
            omegas = {prompt: learner_step.factor(source, prompt) for prompt in omegas}
        pairs[learner, source].omegas += omegas.values()
    return pairs


def _pairs(rows: Rows) -> Pairs:
    return {place: LearnerSource(rows=count) for place, count in rows.counts.items()}


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


def _changed_steps(rows: Rows, recorded_rule: AlgorithmSpec, rule: AlgorithmSpec) -> dict[tuple[int, int], LearnerStep]:
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


def check_recorded(rows: Rows, rule: AlgorithmSpec) -> RecordedCheck:
    """The recorded numbers beside those that this arithmetic gives at the recorded settings."""
    same = sides_same = total = 0
    worst = advantage_worst = 0.0
    has_advantages = rule.capability_options.scope != "subject" or not rule.weighs_baseline
    learner_steps = {
        (step, learner): learner_step_of(
            rows, step, learner, rule, ratios(rows, step, rule), ratios_of_prompts(rows, step, rule)
        )
        for step in rows.steps
        for learner in range(rows.num_agents)
    }
    for block in rows.blocks:
        place = (block.is_own, block.mini_batch, block.ratios, block.weighed(block.advantages), block.omega)
        sides, weights = rule.weigh(*place, block.starts)
        total += len(weights)
        sides_same += sum(a == b for a, b in zip(sides, block.sides, strict=True))
        for ours, theirs in zip(weights, block.weights, strict=True):
            if ours == theirs:
                same += 1
            else:
                worst = max(worst, abs(ours - theirs) / max(abs(ours), abs(theirs)))
        if block.is_replayed or not has_advantages:  # a replayed row's come from the rewards of another step
            continue
        advantages = learner_steps[block.step, block.learner].advantages(block)
        gaps = [abs(a - b) for a, b in zip(advantages, block.advantages, strict=True)]
        advantage_worst = max(advantage_worst, max(gaps, default=0.0))
    strengths = [
        (capability(rows.means_until(agent, step), rule.capability_options.window), value)
        for (step, agent), value in rows.capabilities.items()
    ]
    exact = sum(isclose(ours, theirs, rel_tol=NEAR) for ours, theirs in strengths)
    gap = advantage_worst if has_advantages else None
    return RecordedCheck(total, same, sides_same, worst, len(strengths), exact, gap)
