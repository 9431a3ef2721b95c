"""Commands for the results of a run: checkpoints, models from checkpoints, evaluations, alerts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from uuid import uuid4

import typer

from hacrl_web.client.command import (
    AsJson,
    ClientProblem,
    RunName,
    client_command,
    complete_run,
    completer,
    connect,
    object_id,
    run_id,
)
from hacrl_web.client.show import format_number, line, print_json, print_rows, table
from workers import number_format

NEWEST = 50


@client_command
def checkpoints(run: RunName, json: AsJson = False) -> None:
    """The checkpoints of a run, newest first. hacrl export checkpoint saves an agent of one.

    Example: hacrl checkpoints swan
    """
    with connect() as client:
        answer = client.get(f"/runs/{run_id(client, run)}/checkpoints")
    if json:
        return print_json(answer)
    rows = (
        [
            one["step"],
            number_format.format_size(one["size_bytes"]),
            format_number(one["accuracy"], "accuracy"),
            ", ".join(f"{agent['position']} {agent['name']}" for agent in one["agents"]),
            one["damage"] or " ".join(word for word in ("newest", "best") if one[f"is_{word}"]),
        ]
        for one in answer["items"]
    )
    where = f" They are on the host {answer['host']}." if answer["host"] else ""
    table(["step", "size", answer["score_word"], "agents", ""], rows, empty=f"No checkpoint is here.{where}")
    return None


@client_command
def promote(
    run: RunName,
    step: Annotated[int, typer.Option(help="Of the checkpoint.")],
    agent: Annotated[str, typer.Option(help="The agent's name, or its place in the checkpoint.")] = "0",
    name: Annotated[str, typer.Option(help="Of the new model; without it a name is generated.")] = "",
    json: AsJson = False,
) -> None:
    """Register a trained agent as a model.

    Example: hacrl promote swan --step 40 --agent Llama
    """
    with connect() as client:
        path = f"/runs/{run_id(client, run)}/checkpoints"
        body = {"step": step, "agent": _place(client.get(path)["items"], step, agent), "name": name}
        answer = client.post(f"{path}/promote", body)
    print_json(answer) if json else line(f"Model {answer['id']}: {answer['name']}")


@client_command
def extend(
    run: RunName,
    steps: Annotated[int, typer.Option(help="How many more.", min=1)],
    step: Annotated[int | None, typer.Option(help="The checkpoint's; the newest without it.")] = None,
    json: AsJson = False,
) -> None:
    """Queue a new run that continues from a checkpoint for more steps.

    Example: hacrl extend swan --steps 40
    """
    with connect() as client:
        path = f"/runs/{run_id(client, run)}/checkpoints"
        if step is None:
            step = next((one["step"] for one in client.get(path)["items"] if one["is_newest"]), None)
        if step is None:
            raise ClientProblem("This run has no intact checkpoint to continue from.")
        answer = client.post(f"{path}/extend", {"step": step, "steps": steps}, key=uuid4().hex)
    print_json(answer) if json else line(f"Run {answer['id']}: {answer['name']}, {client.url}{answer['url']}")


def _place(checkpoints_of_run: list[dict[str, Any]], step: int, agent: str) -> int:
    """The agent's place in the checkpoint. Error: ClientProblem."""
    agents: list[dict[str, Any]] = next((one["agents"] for one in checkpoints_of_run if one["step"] == step), [])
    for one in agents:
        if one["name"] == agent:
            return int(one["position"])
    if agent.isascii() and agent.isdigit():
        return int(agent)  # the server checks it, and the step
    hint = f"its agents: {', '.join(one['name'] for one in agents)}" if agents else "it has no checkpoint at this step"
    raise ClientProblem(f"The run has no agent {agent!r} in a checkpoint of step {step}; {hint}.")


def _of_evaluation(
    client: Any, benchmark: list[str] | None, model: list[str] | None, group: str | None, run: str | None
) -> dict[str, Any]:
    """What an evaluation is of, by ids; None for what is not named."""
    return {
        "benchmarks": [object_id(client, "/benchmarks", "benchmark", one) for one in benchmark or []] or None,
        "models": [object_id(client, "/models", "model", one) for one in model or []] or None,
        "group": object_id(client, "/groups", "group", group) if group else None,
        "run": run_id(client, run) if run else None,
    }


@client_command
def evaluate(
    benchmark: Annotated[
        list[str], typer.Option(help="By id or name. Repeat it.", autocompletion=completer("/benchmarks"))
    ],
    model: Annotated[
        list[str] | None, typer.Option(help="A model, by id or name. Repeat it.", autocompletion=completer("/models"))
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="All agents of a group, by id or name.", autocompletion=completer("/groups"))
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="The agents of a checkpoint of this run.", autocompletion=complete_run)
    ] = None,
    step: Annotated[int | None, typer.Option(help="The checkpoint's; the newest if it is left out.")] = None,
    num_samples: Annotated[int | None, typer.Option(help="Answers to each question.")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Of each answer; left out: as in training, or what the shortest context allows."),
    ] = None,
    max_questions: Annotated[int | None, typer.Option(help="Of each benchmark.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the evaluation.")] = None,
    json: AsJson = False,
) -> None:
    """Let models answer benchmarks, as a run without training. hacrl watch and hacrl scores show it.

    Example: hacrl evaluate --run swan --step 40 --benchmark gsm8k --model 1
    """
    with connect() as client:
        body = _of_evaluation(client, benchmark, model, group, run) | {
            "step": step,
            "num_samples": num_samples,
            "max_questions": max_questions,
            "name": name,
        }
        body["max_completion_length"] = max_tokens
        settings = {key: value for key, value in body.items() if value is not None}
        answer = client.post("/evaluations", settings, key=uuid4().hex)
    print_json(answer) if json else line(f"Run {answer['id']}: {answer['name']}, {client.url}{answer['url']}")


@client_command
def evaluate_harness(
    task: Annotated[list[str] | None, typer.Option(help="Of lm-evaluation-harness. Repeat it.")] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            help="Of ours, asked as a task: by id or name. Repeat it.", autocompletion=completer("/benchmarks")
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model, by id or name. Repeat it.", autocompletion=completer("/models"))
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="All agents of a group, by id or name.", autocompletion=completer("/groups"))
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="The agents of a checkpoint of this run.", autocompletion=complete_run)
    ] = None,
    step: Annotated[int | None, typer.Option(help="The checkpoint's; the newest if it is left out.")] = None,
    num_fewshot: Annotated[
        int | None, typer.Option(help="Examples before each question; else each task's own.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Questions of each task at most.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Requests in one batch.")] = None,
    prompt_format: Annotated[str | None, typer.Option(help="agent, chat or plain.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the evaluation.")] = None,
    json: AsJson = False,
) -> None:
    """Let lm-evaluation-harness evaluate models, as a run without training. hacrl scores shows what it measured.

    Example: hacrl evaluate-harness --run swan --task gsm8k --limit 100
    """
    with connect() as client:
        body = _of_evaluation(client, benchmark, model, group, run) | {
            "tasks": task or None,
            "step": step,
            "num_fewshot": num_fewshot,
            "limit": limit,
            "batch_size": batch_size,
            "name": name,
        }
        body["prompt_format"] = prompt_format
        settings = {key: value for key, value in body.items() if value is not None}
        answer = client.post("/harness-evaluations", settings, key=uuid4().hex)
    print_json(answer) if json else line(f"Run {answer['id']}: {answer['name']}, {client.url}{answer['url']}")


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


@client_command
def alerts(
    run: Annotated[str | None, typer.Argument(help="Of this run alone.", autocompletion=complete_run)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest.")] = NEWEST,
    json: AsJson = False,
) -> None:
    """Alerts of runs, newest first.

    Example: hacrl alerts --all
    """
    with connect() as client:
        path = f"/runs/{run_id(client, run)}/alerts" if run else "/alerts"
        items = list(client.pages(path, most=limit, state="all" if everything else "open"))

    def cells(one: dict[str, Any]) -> list[Any]:
        return [one["run"][:8], one["raised_step"], "open" if one["is_open"] else "over", one["title"], one["text"]]

    heads = ["run", "step", "", "alert", "what was found"]
    print_rows(items, json, heads, cells, empty="No alert." if everything else "No alert is open.")
