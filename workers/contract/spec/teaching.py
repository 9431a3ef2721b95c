"""Settings under which nothing can be learned, and settings under which little can: each with its reason and remedy.

The first are refused at launch; the second are cautions, because somebody may want them: to measure speed, or a floor.
"""

from __future__ import annotations

from collections.abc import Iterator

from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract.spec.run import Caution, RunSpec

GROUP_RULES = (AlgorithmSpec.learner_advantages, SharingSpec.learner_advantages)  # advantage 0 in a group of one
SMALL_WEIGHT = 1e-4  # of weights with standard deviation .02, 99.6 % are larger
# An update moves a weight by the learning rate at most; one below half a unit in the last place changes nothing.
FLOAT32_HALF_UNIT, BFLOAT16_HALF_UNIT = 2.0**-25, 2.0**-9
LONG_WITHOUT_WEIGHT = 10  # steps; an agent for which no rollout had weight for so long is named
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
        elif all(spec.rollout_of(agent).top_k == 1 for agent in spec.agents):
            result["rollout.top_k"] = (
                "with the most probable token alone all rollouts of a prompt are the same, so every advantage is 0 and "
                "nothing is learned: set 0, or 2 or more"
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
    greedy = [agent.name for agent in spec.agents if spec.rollout_of(agent).temperature < GREEDY_TEMPERATURE]
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
