"""The questions whose prompts, with a response, fit into the context of every agent."""

from __future__ import annotations

from collections.abc import Sequence

from workers.agents.interface import AgentInterface
from workers.contract.spec.data import DataSpec
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question, Split, split_questions
from workers.trainer.progress import Log


def questions_that_fit(
    spec: RunSpec, agents: Sequence[AgentInterface], split: Split, log: Log
) -> tuple[list[Question], list[Question]]:
    """Training and held-out questions without those that are too long for any agent.

    Errors: ValueError where a batch cannot be filled, or an agent's context is too short.
    """
    train = _short_enough(agents, "training questions", split.train, log)
    held_out = _short_enough(agents, "held-out questions", _at_most(spec, split.held_out), log)
    if len(train) < spec.training.train_batch_size:
        raise ValueError(
            f"{len(train)} training questions cannot fill a batch of {spec.training.train_batch_size}: "
            "lower train_batch_size or raise max_prompt_length"
        )
    for agent in agents:
        _check_context(spec, agent, agent.longest_prompt([*train, *held_out]))
    return train, held_out


def evaluated_questions_that_fit(
    spec: RunSpec, agents: Sequence[AgentInterface], data: DataSpec, log: Log
) -> list[Question]:
    """The questions of a benchmark that is only evaluated: its held-out ones, or all.

    Errors: BenchmarkError; ValueError where none is short enough, or an agent's context is too short.
    """
    if data.eval_path:
        data = data.model_copy(update={"train_path": data.eval_path, "eval_path": None, "held_out_fraction": 0.0})
    split = split_questions(data)
    candidates = _at_most(spec, split.held_out or split.train)
    questions = _short_enough(agents, f"questions of {data.benchmark}", candidates, log)
    if not questions:
        raise ValueError(f"no question of {data.benchmark} fits into every agent: raise rollout.max_prompt_length")
    for agent in agents:
        _check_context(spec, agent, agent.longest_prompt(questions))
    return questions


def _at_most(spec: RunSpec, questions: list[Question]) -> list[Question]:
    return questions[: spec.evaluation.max_questions or len(questions)]


def _short_enough(
    agents: Sequence[AgentInterface], what: str, questions: Sequence[Question], log: Log
) -> list[Question]:
    fits = [agent.fits(questions) for agent in agents]
    fitting = [question for index, question in enumerate(questions) if all(each[index] for each in fits)]
    left_out = len(questions) - len(fitting)
    log("warning" if left_out else "info", f"{len(fitting)} {what}, {left_out} left out as too long")
    return fitting


def _check_context(spec: RunSpec, agent: AgentInterface, prompt_length: int) -> None:
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
