"""Commands for the results of a run: checkpoints, models from checkpoints, alerts, scores."""

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
    connect,
    run_id,
)
from hacrl_web.client.show import format_number, line, print_json, print_rows, table
from workers.contract import number_format

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
