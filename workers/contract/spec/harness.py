"""RunSpec's section of an evaluation by lm-evaluation-harness, and the variables that say how it is run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from workers.contract.settings import Count, OwnCount, SettingsSection, setting

HARNESS = "lm-evaluation-harness"
# Of the environment: the Python that has the harness, the operator's folder of tasks, and whether tasks may fetch code
# of metrics from the hub and run it (1).
PYTHON_VARIABLE, TASKS_VARIABLE = "HACRL_LM_EVAL", "HACRL_LM_EVAL_TASKS"
METRIC_CODE_VARIABLE = "HACRL_LM_EVAL_METRIC_CODE"
# No path, no pattern: a name that the harness looks up in its own list.
TaskName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+()\-]*$")]
DAY_S = 86_400


class HarnessSpec(SettingsSection):
    """An evaluation by EleutherAI's lm-evaluation-harness, in a process and an environment of its own."""

    # Empty only in runs of earlier versions, which could ask their benchmarks alone.
    tasks: tuple[TaskName, ...] = setting(
        (), help="Names of tasks, groups or tags of the harness.", source="lm-evaluation-harness", max_length=100
    )
    num_fewshot: OwnCount = setting(
        None,
        label="Examples before each question",
        help="Solved examples (few-shot); empty: as each task says.",
        source="lm-evaluation-harness",
        ge=0,
        le=100,
    )
    limit: Count = setting(
        0,
        label="Questions of each task at most",
        help="The first questions of each task, for a trial; 0: all.",
        source="lm-evaluation-harness",
        unit="questions",
        ge=0,
        le=10_000_000,
    )
    batch_size: Count = setting(
        8, help="Requests in one batch.", source="ours", unit="requests", changes_results=False, ge=1, le=4096
    )
    prompt_format: Literal["agent", "chat", "plain"] = setting(
        "agent",
        help="agent: as each agent's prompt_format says, so chat where the tokenizer has a template; chat: through the "
        "chat template; plain: the bare prompt.",
        source="product",
    )
    time_limit_s: Count = setting(
        DAY_S, label="Time limit", help="Of the evaluation of one agent.", source="ours", unit="s", ge=1, le=30 * DAY_S
    )
    source_run: str = setting(
        "", help="The run whose checkpoint is evaluated.", source="product", pattern=r"^([0-9a-f-]{36})?$"
    )
    source_step: OwnCount = setting(None, help="The step of that checkpoint.", source="product", ge=0)

    @field_validator("tasks")
    @classmethod
    def _tasks_differ(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        if twice := next((task for task in tasks if tasks.count(task) > 1), ""):
            raise ValueError(f"{twice!r} is listed twice: remove one of the two")
        return tasks
