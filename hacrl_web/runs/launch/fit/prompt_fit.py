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

from hacrl_web.registry.agent_groups.agent_settings import agent_values
from hacrl_web.registry.base.children import PROMPT_LENGTHS
from hacrl_web.registry.benchmarks.questions import training_questions
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
    limit, name = spec.rollout.max_prompt_length, benchmark.name
    try:
        status = Path(benchmark.train_path).stat()
        questions = _shortest(benchmark.pk, status.st_size, status.st_mtime_ns)
        template, system = benchmark.prompt_template, benchmark.system_prompt
        around = max(len((agent.setting("prompt_template") + template + system).encode()) for agent in agents)
        if len(questions) < enough or len(questions[enough - 1].encode()) + around + CHAT_TOKENS <= limit:
            return []
        request = {"questions": questions, "template": template, "system": system, "limit": limit, "enough": enough}
        longest = _longest(json.dumps(request | {"agents": [agent_values(agent) for agent in agents]}))
    except (OSError, ValueError, KeyError, FieldErrors):  # the trainer then looks itself
        return []
    num_short = sum(length <= limit for length in longest)
    if num_short >= enough:
        return []
    needed, answers = longest[enough - 1], spec.rollout.max_completion_length
    context = min((agent.model.context_length for agent in agents if agent.model.context_length), default=0)
    message = f"Of the training questions of {name}, {num_short:,} fit into {limit:,} tokens, "
    message += f"too few for a batch of {enough:,}: "
    if context and needed >= context:
        cure = f"the models read and write at most {context:,}, so choose a benchmark with shorter questions."
        return [FieldError("questions_too_long", message + cure, FIELD)]
    lengths = {"max_prompt_length": needed}
    if context and needed + answers > context:
        lengths["max_completion_length"] = context - needed
    label = ", ".join(f"{setting} {length:,}" for setting, length in lengths.items())
    fix = RequestFix(label, {"rollout": lengths})
    return [FieldError("questions_too_long", f"{message}set {label}, or lower train_batch_size.", FIELD, (fix,))]


@lru_cache(maxsize=8)
def _shortest(pk: int, *version: int) -> list[str]:
    """The shortest training questions, the shortest first. Errors: as of training_questions."""
    questions = training_questions(Benchmark.objects.get(pk=pk))
    return sorted(questions, key=lambda text: len(text.encode()))[:MAX_MEASURED]


@lru_cache(maxsize=32)
def _longest(request: str) -> list[int]:
    """Tokens of each measured question for the agent that has most, ascending. Errors: FieldErrors, KeyError."""
    answer: dict[str, Any] = PROMPT_LENGTHS.ask(at=FIELD, request=json.loads(request))
    return sorted(map(max, answer["lengths"]))
