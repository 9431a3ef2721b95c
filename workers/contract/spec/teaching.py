"""Settings under which nothing can be learned, and settings under which little can: each with its reason and remedy.

The first are refused at launch; the second are cautions, because somebody may want them: to measure speed, or a floor.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workers.algorithms.base.gated import GatedSpec
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract.spec.run import Caution, RunSpec

GROUP_RULES = (AlgorithmSpec.learner_advantages, SharingSpec.learner_advantages)  # advantage 0 in a group of one
SMALL_WEIGHT = 1e-4  # of weights with standard deviation .02, 99.6 % are larger
# An update moves a weight by the learning rate at most; one below half a unit in the last place changes nothing.
FLOAT32_HALF_UNIT, BFLOAT16_HALF_UNIT = 2.0**-25, 2.0**-9
LONG_WITHOUT_WEIGHT = 10  # steps; an agent for which no rollout had weight for so long is named
NO_NUCLEUS = 1e-7  # the most probable of ten million tokens has more
SMALL_NUCLEUS = 0.05
GREEDY_TEMPERATURE = 0.02  # a token that is one nat behind has less than 2e-22 of the probability


def blockers(spec: RunSpec) -> dict[str, str]:
    """Settings by which no rollout can have weight: the path of each, with reason and remedy in words."""
    if spec.is_evaluation_only:
        return {}
    result, rewards, rollout = {}, spec.rewards, spec.rollout
    is_alone = spec.sharing is None or len(spec.agents) == 1
    if is_alone and type(spec.algorithm).learner_advantages in GROUP_RULES:
        if spec.num_generations == 1:
            peers = "" if len(spec.agents) == 1 else " or let the agents share rollouts"
            result["rollout.num_generations"] = (
                "with one rollout a prompt its reward is its own baseline, so every advantage is 0 and nothing is "
                f"learned: set 2 or more{peers}"
            )
        elif all(one.top_k == 1 or one.top_p <= NO_NUCLEUS for one in map(spec.rollout_of, spec.agents)):
            is_top_k = spec.rollout_of(spec.agents[0]).top_k == 1
            result["rollout.top_k" if is_top_k else "rollout.top_p"] = (
                "with the most probable token alone all rollouts of a prompt are the same, so every advantage is 0 and "
                f"nothing is learned: set {'0, or 2 or more' if is_top_k else '0.9 to 1'}"
            )
    paid = [term for term in rewards.terms if term.weight]
    longest = rollout.max_completion_length
    pays_alike = all(term.kind == "length" and term.length >= longest for term in paid)
    if pays_alike and not rewards.verifier_weight and not spec.algorithm.overlong_cache:
        result["rewards.terms"] = (
            f"every completion has at most {longest:,} tokens, for which these rewards pay 1, so all rewards are equal "
            "and nothing is learned: lower their length, or raise verifier_weight"
        )
    rate = max(agent.learning_rate or spec.training.learning_rate for agent in spec.agents)
    if rate < SMALL_WEIGHT * FLOAT32_HALF_UNIT and not any(agent.lora_rank for agent in spec.agents):
        result["training.learning_rate"] = (
            f"a step of {rate:g} is lost in float32 for every weight above {SMALL_WEIGHT:g}, so nothing is learned: "
            "try 1e-6"
        )
    return result


def _passes(rule: GatedSpec, spec: RunSpec) -> bool:
    """Whether a shared rollout has weight at any ratio, sign of its advantage, and update of a step."""
    s = np.append(np.geomspace(1 / 16, 16, 64), (1 - 1e-6, 1 + 1e-6))  # 1 itself is the ratio of equal models alone
    updates = range(spec.updates_per_block, spec.last_update + 1)
    terms = (
        rule.shared_weights(s, np.full_like(s, sign), 1.0, m, np)
        for m in updates[:: max(1, len(updates) // 64)]
        for sign in (1, -1)
    )
    return any(((one.weight != 0) & one.flows).any() for one in terms)


def cautions_of(spec: RunSpec) -> list[Caution]:
    """Settings that a request confirms: probably a mistake, or such that little can be learned."""
    hardly = [Caution(code=code, field=path, message=text) for code, path, text in _hardly_teaches(spec)]
    return [*spec.cautions(), *hardly]


def _hardly_teaches(spec: RunSpec) -> Iterator[tuple[str, str, str]]:
    """Settings with which little can be learned: code, path and message."""
    if spec.is_evaluation_only or blockers(spec):
        return
    training, longest = spec.training, spec.rollout.max_completion_length
    if longest == 1:
        message = (
            "Answers of one token: only a letter or a number of one token can be right, and all others are cut. "
            "Raise max_completion_length, unless you want that."
        )
        yield "one_token_answers", "rollout.max_completion_length", message
    how = {agent.name: spec.rollout_of(agent) for agent in spec.agents}
    narrow = [name for name, one in how.items() if one.top_p < SMALL_NUCLEUS]
    if narrow and spec.num_generations > 1:
        message = (
            f"With top_p below {SMALL_NUCLEUS:g} {narrow[0]} nearly always samples its most probable token, so its "
            "rollouts of a prompt are the same and their advantages 0: 0.9 to 1 is usual."
        )
        yield "narrow_nucleus", "rollout.top_p", message
    if spec.num_blocks > 1 and isinstance(rule := spec.rule, GatedSpec) and not _passes(rule, spec):
        weight = rule.cross_weight == 0
        message = (
            f"No shared rollout teaches: {'cross_weight is 0' if weight else 'the gate is 0 at every ratio'}. Agents "
            f"share their baseline alone: {'raise it' if weight else 'lower delta_step'}, or set sharing to false."
        )
        yield "no_shared_weight", f"algorithm.{'cross_weight' if weight else 'delta_step'}", message
    greedy = [name for name, one in how.items() if one.temperature < GREEDY_TEMPERATURE]
    if greedy and spec.num_generations > 1:
        message = (
            f"At a temperature below {GREEDY_TEMPERATURE:g} the rollouts of {greedy[0]} for a prompt are nearly always "
            "the same, so their advantages are 0: 0.7 to 1 is usual."
        )
        yield "greedy_rollouts", "rollout.temperature", message
    if training.warmup_steps > training.steps:
        share = training.steps / training.warmup_steps
        message = (
            f"A warm-up of {training.warmup_steps:,} steps in a run of {training.steps:,}: the learning rate ends at "
            f"{share:.2g} of its peak. Lower warmup_steps."
        )
        yield "warmup_beyond_run", "training.warmup_steps", message
    updates = training.steps * spec.num_blocks * spec.updates_per_block
    for agent in spec.agents:
        moved = (agent.learning_rate or training.learning_rate) * updates
        if not agent.lora_rank and spec.compute.dtype != "float32" and moved < SMALL_WEIGHT * BFLOAT16_HALF_UNIT:
            message = (
                f"{updates:,} updates at this learning rate move a weight of {agent.name} by {moved:.1g} at most: in "
                "bfloat16 hardly any weight that samples changes (the trainer's own are float32). Raise it, or set "
                "compute.dtype to float32."
            )
            yield "learning_rate_vanishes", "training.learning_rate", message
            return
