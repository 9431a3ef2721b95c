"""The change of a run's settings that a rule of alerts proposes, where one setting clearly acts against its cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workers.algorithms.registry import algorithms
from workers.contract.spec.algorithm import RECOMMENDED
from workers.contract.spec.run import RunSpec

MAX_GENERATIONS = 1024  # RunSpec's bound
OVERLONG_PART = 5  # the penalty begins in the last fifth of the longest completion, as in DAPO


@dataclass(frozen=True)
class Remedy:
    """label: the change in words.  settings: by dotted path.  agents: in place of what the group gives an agent."""

    label: str
    settings: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


# Of a run's settings and the agent of an alert; None where these settings leave nothing to change.
Propose = Callable[[RunSpec, str], Remedy | None]


def recommended_rule(spec: RunSpec, agent: str) -> Remedy | None:
    """The recommended sharing rule, which has no clip band."""
    if spec.algorithm.name == RECOMMENDED:
        return None
    return Remedy(f"algorithm: {algorithms()[RECOMMENDED].label}", {"algorithm.name": RECOMMENDED})


def more_rollouts(spec: RunSpec, agent: str) -> Remedy | None:
    """Twice the rollouts of a prompt: more prompts have both correct and incorrect answers."""
    number = 2 * spec.rollout.num_generations
    if number > MAX_GENERATIONS:
        return None
    return Remedy(f"{number} rollouts per prompt", {"rollout.num_generations": str(number)})


def half_the_learning_rate(spec: RunSpec, agent: str) -> Remedy | None:
    """Halves the learning rate of this agent alone."""
    rates = {one.name: one.learning_rate or spec.training.learning_rate for one in spec.agents}
    if agent not in rates:
        return None
    rate = float(f"{rates[agent] / 2:.6g}")
    return Remedy(f"learning rate {rate:g} for {agent}", agents={agent: {"learning_rate": rate}})


def overlong_penalty(spec: RunSpec, agent: str) -> Remedy | None:
    """A penalty for answers near the longest completion; none where there is one already."""
    tokens = spec.rollout.max_completion_length // OVERLONG_PART
    if spec.algorithm.overlong_cache or tokens == 0:
        return None
    return Remedy(f"a penalty within the last {tokens:,} tokens", {"algorithm.overlong_cache": str(tokens)})


def half_the_cross_weight(spec: RunSpec, agent: str) -> Remedy | None:
    """Halves the weight of peers' rollouts, for algorithms that have such a weight."""
    weight = getattr(spec.algorithm, "cross_weight", None)
    if not weight:
        return None
    return Remedy(f"cross weight {weight / 2:g}", {"algorithm.cross_weight": f"{weight / 2:g}"})


def trainer_as_engine(spec: RunSpec, agent: str) -> Remedy | None:
    """Rollouts by the trainer's own model, whose weights are always the new ones."""
    if spec.rollout.engine == "transformers":
        return None
    return Remedy("rollout engine: transformers", {"rollout.engine": "transformers"})
