"""Whether enough training questions of a benchmark are short enough to train on, before a run is queued.

The trainer leaves out questions whose prompt has more than `rollout.max_prompt_length` tokens for an agent. A text has
no more tokens than bytes, so most settings need no tokenizer; only the others are measured, in a child process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hacrl_web.registry.benchmarks.questions import training_questions
from hacrl_web.registry.children import PROMPT_LENGTHS
from hacrl_web.registry.language_models.agent_settings import agent_values
from hacrl_web.registry.models import Agent, Benchmark
from hacrl_web.web.errors import FieldError, FieldErrors, RequestFix
from workers.contract.spec.run import RunSpec

FIELD = "rollout.max_prompt_length"
CHAT_TOKENS = 128  # room for what a chat template adds, in the estimate by bytes
MAX_MEASURED = 5_000  # the shortest questions, if there are more


def too_long_prompts(spec: RunSpec, agents: Sequence[Agent], benchmark: Benchmark, enough: int) -> list[FieldError]:
    """An error where fewer questions fit than a batch takes, with the lengths. None where they cannot be known.

    enough: prompts of a batch that are of this benchmark.
    """
    if spec.is_evaluation_only or not agents:
        return []
    limit = spec.rollout.max_prompt_length
    try:
        questions = _shortest(benchmark.pk, benchmark.train_path, _version(benchmark.train_path))
    except (OSError, ValueError, KeyError):
        return []
    around = _size(benchmark.prompt_template) + len(benchmark.system_prompt.encode())
    around += max((_own_bytes(agent) for agent in agents), default=0)
    if len(questions) < enough or len(questions[enough - 1].encode()) + around <= limit:
        return []
    request = {
        "questions": questions,
        "template": benchmark.prompt_template,
        "system": benchmark.system_prompt,
        "agents": [agent_values(agent) for agent in agents],
        "limit": limit,
        "enough": enough,
    }
    lengths = _measured(json.dumps(request))
    return _refusals(spec, benchmark, agents, lengths, enough) if lengths else []


def _refusals(
    spec: RunSpec, benchmark: Benchmark, agents: Sequence[Agent], lengths: Sequence[Sequence[int]], enough: int
) -> list[FieldError]:
    """lengths: tokens of each agent, for each measured question."""
    limit = spec.rollout.max_prompt_length
    longest = sorted(max(of_agents) for of_agents in lengths)
    num_short = sum(length <= limit for length in longest)
    if num_short >= enough:
        return []
    needed = longest[enough - 1]
    context = min((agent.model.context_length for agent in agents if agent.model.context_length), default=0)
    answers = spec.rollout.max_completion_length
    fixes = []
    if context and needed >= context:
        cure = f"the models read and write at most {context:,} tokens, so choose a benchmark with shorter questions"
    else:
        cure, lengths_needed = f"raise it to {needed:,} or more", {"max_prompt_length": needed}
        if context and needed + answers > context:
            cure += f", and lower max_completion_length to {context - needed:,} or less"
            lengths_needed["max_completion_length"] = context - needed
        label = ", ".join(f"{name} {length:,}" for name, length in lengths_needed.items())
        fixes.append(RequestFix(label, {"rollout": lengths_needed}))
    if num_short == 0:
        shortest = min(range(len(lengths)), key=lambda place: max(lengths[place]))
        agent = agents[max(range(len(agents)), key=lengths[shortest].__getitem__)]
        message = (
            f"No training question of {benchmark.name} fits: the shortest prompt has {longest[0]:,} tokens for agent "
            f"{agent.name}, and max_prompt_length is {limit:,}. For a batch of {enough:,}, {cure}."
        )
    else:
        message = (
            f"Only {num_short:,} training question{'s' if num_short > 1 else ''} of {benchmark.name} fit into "
            f"max_prompt_length {limit:,}, too few for a batch of {enough:,}: {cure}; or lower train_batch_size."
        )
    return [FieldError("questions_too_long", message, FIELD, tuple(fixes))]


def _own_bytes(agent: Agent) -> int:
    """At most so many tokens stand around a question in an agent's own format."""
    is_chat = agent.model.has_chat_template and agent.prompt_format != Agent.PromptFormat.PLAIN
    return _size(agent.setting("prompt_template")) + (CHAT_TOKENS if is_chat else 0)


def _size(template: str) -> int:
    """Bytes of a template around its question."""
    return len(template.replace("{question}", "").encode())


def _version(path: str) -> tuple[int, int]:
    """Changes with the file. Error: OSError."""
    status = Path(path).stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=8)
def _shortest(pk: int, path: str, version: tuple[int, int]) -> list[str]:
    """The shortest training questions, the shortest first. Errors: as of training_questions."""
    questions = training_questions(Benchmark.objects.get(pk=pk))
    return sorted(questions, key=lambda text: len(text.encode()))[:MAX_MEASURED]


@lru_cache(maxsize=32)
def _answers(request: str) -> list[list[int]]:
    """Error: FieldErrors; a refusal is not kept, so that the next launch tries again."""
    answer: dict[str, Any] = PROMPT_LENGTHS.ask(at=FIELD, request=json.loads(request))
    if "lengths" not in answer:
        raise FieldErrors.single("not_measured", str(answer.get("error", "")), FIELD)
    lengths: list[list[int]] = answer["lengths"]
    return lengths


def _measured(request: str) -> list[list[int]]:
    """Empty where a tokenizer cannot be read, or the child is busy: the trainer then looks itself."""
    try:
        return _answers(request)
    except FieldErrors:
        return []
