"""Commands for the results of a run: checkpoints, alerts, scores."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hacrl_web.client.command import (
    AsJson,
    RunName,
    client_command,
    complete_run,
    connect,
    run_id,
)
from hacrl_web.client.show import format_number, print_json, print_rows, table
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
    table(heads, rows, empty="It was not evaluated yet.", folded=frozenset({"benchmark", "agent"}))
    return None
