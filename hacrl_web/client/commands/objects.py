"""Commands for what a run is made of: models, groups, benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hacrl_web.client.command import OPTIONS, AsJson, ClientProblem, client_command, completer, connect, object_id
from hacrl_web.client.show import format_number, line, print_json, table

models = typer.Typer(help="List, register, check and forget models.", **OPTIONS)
groups = typer.Typer(help="List, make and delete agent groups.", **OPTIONS)
benchmarks = typer.Typer(help="List and make benchmarks.", **OPTIONS)
ModelName = Annotated[str, typer.Argument(help="Id of a model, or its name.", autocompletion=completer("/models"))]
GroupName = Annotated[
    str, typer.Argument(help="Id of an agent group, or its name.", autocompletion=completer("/groups"))
]


def add_to(app: typer.Typer) -> None:
    app.add_typer(models, name="models")
    app.add_typer(groups, name="groups")
    app.add_typer(benchmarks, name="benchmarks")


def _made(kind: str, row: dict[str, Any], json: bool) -> None:
    print_json(row) if json else line(f"{kind} {row['id']}: {row['name']}")


@models.callback()
@client_command
def list_models(context: typer.Context, json: AsJson = False) -> None:
    """The models, newest first."""
    if context.invoked_subcommand:
        return None
    with connect() as client:
        rows = list(client.pages("/models"))
    if json:
        return print_json(rows)
    cells = (
        [row["id"], row["name"], row["architecture"], format_number(row["num_parameters"]), row["kind"]] for row in rows
    )
    table(["id", "name", "architecture", "parameters", "kind"], cells, empty="No model yet: hacrl models add LOCATION.")
    return None


@models.command("add")
@client_command
def add_model(
    location: Annotated[str, typer.Argument(help="Hub id, or a folder on the server below its model folders.")],
    hub: Annotated[bool, typer.Option("--hub", help="The location is a hub id.")] = False,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of the hub.")] = "",
    name: Annotated[str, typer.Option(help="Its name here.")] = "",
    json: AsJson = False,
) -> None:
    """Register a model. It is inspected first.

    Example: hacrl models add Qwen/Qwen3-0.6B --hub
    """
    body = {"location": location, "kind": "hub" if hub else "local", "revision": revision, "name": name}
    with connect() as client:
        _made("Model", client.post("/models", body), json)


@groups.callback()
@client_command
def list_groups(context: typer.Context, json: AsJson = False) -> None:
    """The agent groups, newest first."""
    if context.invoked_subcommand:
        return None
    with connect() as client:
        rows = list(client.pages("/groups"))
    if json:
        return print_json(rows)
    cells = ([row["id"], row["name"], ", ".join(agent["name"] for agent in row["agents"])] for row in rows)
    table(["id", "name", "agents"], cells, empty="No group yet: hacrl groups add NAME --agent MODEL --agent MODEL.")
    return None


@groups.command("add")
@client_command
def add_group(
    name: str,
    agent: Annotated[list[str], typer.Option(help="A model, by id or name; NAME=MODEL names the agent. Repeat it.")],
    json: AsJson = False,
) -> None:
    """Make a group of agents.

    Example: hacrl groups add pair --agent left=1 --agent right=2
    """
    with connect() as client:
        agents = []
        for text in agent:
            named, _, model = text.rpartition("=")
            agents.append({"model": object_id(client, "/models", "model", model), "name": named})
        _made("Group", client.post("/groups", {"name": name, "agents": agents}), json)


@benchmarks.callback()
@client_command
def list_benchmarks(context: typer.Context, json: AsJson = False) -> None:
    """The benchmarks, newest first."""
    if context.invoked_subcommand:
        return None
    with connect() as client:
        rows = list(client.pages("/benchmarks"))
    if json:
        return print_json(rows)
    cells = (
        [row["id"], row["name"], format_number(row["num_train"]), format_number(row["num_held_out"]), row["verifier"]]
        for row in rows
    )
    heads = ["id", "name", "training questions", "held out", "verifier"]
    table(heads, cells, empty="No benchmark yet: hacrl benchmarks add FILE, or hacrl benchmarks load KEY.")
    return None


@benchmarks.command("add")
@client_command
def add_benchmark(
    file: Annotated[Path, typer.Argument(help="Questions: JSONL, CSV or Parquet.")],
    name: Annotated[str, typer.Option(help="Its name; the file's without it.")] = "",
    held_out: Annotated[Path | None, typer.Option(help="A second file of held-out questions.")] = None,
    field: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the form: question_field=problem.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Upload a benchmark.

    Example: hacrl benchmarks add questions.jsonl --set question_field=problem
    """
    fields = {"name": name or file.stem}
    for text in field or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ClientProblem(f"--set takes name=value; this is {text!r}.")
        fields[key] = value
    paths = {"file": file, "held_out_file": held_out}
    opened = {key: (path.name, path.open("rb")) for key, path in paths.items() if path}
    try:
        with connect() as client:
            answer = client.upload("/benchmarks", fields, opened)
    finally:
        for _, stream in opened.values():
            stream.close()
    _made("Benchmark", answer, json)


@benchmarks.command("load")
@client_command
def load_benchmark(
    key: Annotated[str, typer.Argument(help="Key of a built-in benchmark; without it they are listed.")] = "",
    location: Annotated[str, typer.Option(help="A copy on the server to take instead of the hub's.")] = "",
    json: AsJson = False,
) -> None:
    """Make one of the built-in benchmarks.

    Example: hacrl benchmarks load gsm8k
    """
    with connect() as client:
        if key:
            return _made(
                "Benchmark", client.post("/benchmarks/built-in", {"built_in": key, "location": location}), json
            )
        catalogue = client.get("/benchmarks/built-in")
    if json:
        return print_json(catalogue)
    return table(
        ["key", "name", "about"], ([one["key"], one["name"], one["about"]] for one in catalogue), empty="None."
    )
