"""Before the first step: which questions fit into every agent, and whether its context holds them with a response."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workers.benchmarks import Question, Split
from workers.events import Level
from workers.placement import Agent
from workers.spec import RunSpec


def questions_that_fit(
    spec: RunSpec, agents: Sequence[Agent], split: Split, log: Callable[[Level, str], None]
) -> tuple[list[Question], list[Question]]:
    """Training and held-out questions without those that are too long for any agent.

    Errors: ValueError where a batch cannot be filled, or an agent's context is too short.
    """
    limit = spec.evaluation.max_questions or len(split.held_out)
    kept = []
    for kind, questions in (("training", split.train), ("held-out", split.held_out[:limit])):
        fits = [agent.fits(questions) for agent in agents]
        kept.append([question for index, question in enumerate(questions) if all(each[index] for each in fits)])
        left_out = len(questions) - len(kept[-1])
        level: Level = "warning" if left_out else "info"
        log(level, f"{len(kept[-1])} {kind} questions, {left_out} left out as too long")
    if len(kept[0]) < spec.training.train_batch_size:
        raise ValueError(
            f"{len(kept[0])} training questions cannot fill a batch of {spec.training.train_batch_size}: "
            "lower train_batch_size or raise max_prompt_length"
        )
    for agent in agents:
        _check_context(spec, agent, agent.longest_prompt([*kept[0], *kept[1]]))
    return kept[0], kept[1]


def _check_context(spec: RunSpec, agent: Agent, prompt_length: int) -> None:
    """Error: ValueError where a prompt and a full response would not fit into the agent's context."""
    context, response = agent.describe()["context_length"], spec.rollout.max_completion_length
    if context is None or prompt_length + response <= context:
        return
    room = context - prompt_length
    cure = f"lower rollout.max_completion_length to {room} or " if room > 0 else ""
    raise ValueError(
        f"{agent.name} has a context of {context} tokens, but its longest prompt of {prompt_length} tokens and a "
        f"response of {response} need {prompt_length + response}: {cure}lower rollout.max_prompt_length"
    )
