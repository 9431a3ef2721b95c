"""Commands that evaluate models, by our verifiers or by lm-evaluation-harness, and show the scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from uuid import uuid4

import typer

from hacrl_web.client.command import (
    AsJson,
    RunName,
    client_command,
    complete_run,
    completer,
    connect,
    object_id,
    run_id,
)
from hacrl_web.client.show import format_number, line, print_json, table

# Options of both commands.
ModelNames = Annotated[
    list[str] | None,
    typer.Option("--model", help="A model, by id or name. Repeat it.", autocompletion=completer("/models")),
]
GroupName = Annotated[
    str | None,
    typer.Option("--group", help="All agents of a group, by id or name.", autocompletion=completer("/groups")),
]
CheckpointRun = Annotated[
    str | None,
    typer.Option("--run", help="The agents of a checkpoint of this run.", autocompletion=complete_run),
]
CheckpointStep = Annotated[int | None, typer.Option("--step", help="The checkpoint's; the newest if it is left out.")]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        help="Of each answer to a benchmark; left out: as in training, or what the shortest context allows.",
    ),
]
MaxQuestions = Annotated[int | None, typer.Option("--max-questions", help="Of each benchmark; 0: all.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Of random choices.")]
EvaluationName = Annotated[str | None, typer.Option("--name", help="Of the evaluation.")]
BY_NAME = completer("/benchmarks")


def _queue(
    path: str,
    settings: dict[str, Any],
    *,
    benchmarks: list[str] | None,
    models: list[str] | None,
    group: str | None,
    run: str | None,
    json: bool,
) -> None:
    """Queue an evaluation; benchmarks, models, group and run are ids or names, and None leaves a setting out."""
    with connect() as client:
        body = settings | {
            "benchmarks": [object_id(client, "/benchmarks", "benchmark", one) for one in benchmarks or []] or None,
            "models": [object_id(client, "/models", "model", one) for one in models or []] or None,
            "group": object_id(client, "/groups", "group", group) if group else None,
            "run": run_id(client, run) if run else None,
        }
        request = {key: value for key, value in body.items() if value is not None}
        answer = client.post(path, request, key=uuid4().hex)
    print_json(answer) if json else line(f"Run {answer['id']}: {answer['name']}, {client.url}{answer['url']}")


@client_command
def evaluate(
    benchmark: Annotated[list[str], typer.Option(help="By id or name. Repeat it.", autocompletion=BY_NAME)],
    model: ModelNames = None,
    group: GroupName = None,
    run: CheckpointRun = None,
    step: CheckpointStep = None,
    num_samples: Annotated[int | None, typer.Option(help="Answers to each question.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="0: greedy; several answers to a question need more.")
    ] = None,
    max_tokens: MaxTokens = None,
    max_questions: MaxQuestions = None,
    seed: Seed = None,
    name: EvaluationName = None,
    json: AsJson = False,
) -> None:
    """Let models answer benchmarks, as a run without training. hacrl watch and hacrl scores show it.

    Example: hacrl evaluate --run swan --step 40 --benchmark gsm8k --model 1
    """
    settings = {
        "step": step,
        "num_samples": num_samples,
        "temperature": temperature,
        "max_completion_length": max_tokens,
        "max_questions": max_questions,
        "seed": seed,
        "name": name,
    }
    _queue("/evaluations", settings, benchmarks=benchmark, models=model, group=group, run=run, json=json)


@client_command
def evaluate_harness(
    task: Annotated[list[str] | None, typer.Option(help="Of lm-evaluation-harness. Repeat it.")] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(help="Of ours, asked as a task: by id or name. Repeat it.", autocompletion=BY_NAME),
    ] = None,
    model: ModelNames = None,
    group: GroupName = None,
    run: CheckpointRun = None,
    step: CheckpointStep = None,
    num_fewshot: Annotated[
        int | None, typer.Option(help="Examples before each question; else each task's own.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Questions of each task at most; 0: all.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Requests in one batch.")] = None,
    prompt_format: Annotated[str | None, typer.Option(help="agent, chat or plain.")] = None,
    time_limit: Annotated[int | None, typer.Option(help="Of the evaluation of one model, in seconds.")] = None,
    max_tokens: MaxTokens = None,
    max_questions: MaxQuestions = None,
    seed: Seed = None,
    name: EvaluationName = None,
    json: AsJson = False,
) -> None:
    """Let lm-evaluation-harness evaluate models, as a run without training. hacrl scores shows what it measured.

    Example: hacrl evaluate-harness --run swan --task gsm8k --limit 100
    """
    settings = {
        "tasks": task or None,
        "step": step,
        "num_fewshot": num_fewshot,
        "limit": limit,
        "batch_size": batch_size,
        "prompt_format": prompt_format,
        "time_limit_s": time_limit,
        "max_completion_length": max_tokens,
        "max_questions": max_questions,
        "seed": seed,
        "name": name,
    }
    _queue("/harness-evaluations", settings, benchmarks=benchmark, models=model, group=group, run=run, json=json)


def _harness_rows(lines: list[dict[str, Any]]) -> Iterator[list[Any]]:
    for one in lines:
        metric = one["metric"] if one["filter"] in ("", "none") else f"{one['metric']} ({one['filter']})"
        value, error = (format_number(one[key], "accuracy") for key in ("value", "stderr"))
        yield [one["task"], one["agent"], metric, value, error, one["num_questions"], one["version"]]


@client_command
def scores(run: RunName, json: AsJson = False) -> None:
    """The newest scores of each agent.

    Example: hacrl scores swan
    """
    with connect() as client:
        answer = client.get(f"/runs/{run_id(client, run)}/evaluations")
    if json:
        return print_json(answer)
    rows = (
        [
            benchmark["name"],
            agent["name"],
            last["step"],
            format_number(last["value"], "accuracy"),
            last["asked"],
            last["unscorable"],
        ]
        for benchmark in answer["benchmarks"]
        for agent in benchmark["agents"]
        for last in agent["points"][-1:]
    )
    words = {benchmark["score_word"] for benchmark in answer["benchmarks"]}
    heads = ["benchmark", "agent", "step", words.pop() if len(words) == 1 else "score", "answers", "unscorable"]
    if answer["benchmarks"] or not answer["harness"]:
        table(heads, rows, empty="It was not evaluated yet.", folded=frozenset({"benchmark", "agent"}))
    if answer["harness"]:
        line("By lm-evaluation-harness, not to be ranked with ours:")
        heads = ["task", "agent", "metric", "score", "error", "questions", "version"]
        table(heads, _harness_rows(answer["harness"]), empty="", folded=frozenset({"task", "agent"}))
    return None
