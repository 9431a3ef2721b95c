"""Commands for models, agent groups, benchmarks and sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from hacrl_web.client.api import Client
from hacrl_web.client.command import (
    OPTIONS,
    AsJson,
    ClientProblem,
    Yes,
    agree,
    client_command,
    completer,
    connect,
    object_id,
)
from hacrl_web.client.program import HACRL
from hacrl_web.client.show import counted, format_number, line, moment, print_json, print_rows, state, table

models = typer.Typer(help="List and register models.", **OPTIONS)
groups = typer.Typer(help="List and create agent groups.", **OPTIONS)
sweeps = typer.Typer(help="List and show sweeps; stop or delete all their runs.", **OPTIONS)
benchmarks = typer.Typer(help="List and create benchmarks.", **OPTIONS)
SweepName = Annotated[str, typer.Argument(help="Id of a sweep, or its name.", autocompletion=completer("/sweeps"))]


def _list_by_default(
    app: typer.Typer, path: str, heads: Sequence[str], cells: Callable[[Any], Sequence[Any]], empty: str
) -> None:
    """Without a subcommand, `app` lists the objects of a path."""

    @app.callback()
    @client_command
    def list_objects(context: typer.Context, json: AsJson = False) -> None:
        if not context.invoked_subcommand:
            with connect() as client:
                print_rows(list(client.pages(path)), json, heads, cells, empty=empty)


_list_by_default(
    models,
    "/models",
    ["id", "name", "architecture", "parameters", "kind"],
    lambda row: [row["id"], row["name"], row["architecture"], format_number(row["num_parameters"]), row["kind"]],
    f"No model yet: {HACRL} models add LOCATION.",
)
_list_by_default(
    groups,
    "/groups",
    ["id", "name", "agents"],
    lambda row: [row["id"], row["name"], ", ".join(agent["name"] for agent in row["agents"])],
    f"No group yet: {HACRL} groups add NAME --agent MODEL --agent MODEL.",
)
_list_by_default(
    benchmarks,
    "/benchmarks",
    ["id", "name", "training questions", "held out", "verifier"],
    lambda row: [
        *(row["id"], row["name"], format_number(row["num_train"]), format_number(row["num_held_out"]), row["verifier"])
    ],
    f"No benchmark yet: {HACRL} benchmarks add FILE, or {HACRL} benchmarks load KEY.",
)


def _print_new(kind: str, row: dict[str, Any], json: bool) -> None:
    print_json(row) if json else line(f"{kind} {row['id']}: {row['name']}")


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
        _print_new("Model", client.post("/models", body), json)


@groups.command("add")
@client_command
def add_group(
    name: str,
    agent: Annotated[list[str], typer.Option(help="A model, by id or name; NAME=MODEL names the agent. Repeat it.")],
    json: AsJson = False,
) -> None:
    """Create a group of agents.

    Example: hacrl groups add pair --agent left=1 --agent right=2
    """
    with connect() as client:
        agents = []
        for text in agent:
            named, _, model = text.rpartition("=")
            agents.append({"model": object_id(client, "/models", "model", model), "name": named})
        _print_new("Group", client.post("/groups", {"name": name, "agents": agents}), json)


@groups.command("copy")
@client_command
def copy_group(
    group: Annotated[str, typer.Argument(help="A group, by id or name.")],
    name: Annotated[str, typer.Argument(help="Name of the new group.")],
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of an agent: left.lora_rank=16. Repeat it.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Create a group of the same agents with other settings; the group and its runs stay as they are.

    Example: hacrl groups copy pair pair-lora --set left.lora_rank=16
    """
    changes: dict[str, dict[str, str]] = {}
    for text in setting or []:
        place, equals, value = text.partition("=")
        agent, dot, key = place.rpartition(".")
        if not equals or not dot:
            raise ClientProblem(f"--set takes agent.setting=value; this is {text!r}.")
        changes.setdefault(agent, {})[key] = value
    with connect() as client:
        path = f"/groups/{object_id(client, '/groups', 'group', group)}/copy"
        _print_new("Group", client.post(path, {"name": name, "agents": changes}), json)


@benchmarks.command("copy")
@client_command
def copy_benchmark(
    benchmark: Annotated[str, typer.Argument(help="A benchmark, by id or name.")],
    name: Annotated[str, typer.Argument(help="Name of the new benchmark.")],
    field: Annotated[list[str] | None, typer.Option("--set", help="An option: verifier=numeric. Repeat it.")] = None,
    json: AsJson = False,
) -> None:
    """Create a benchmark of the same questions with other options; the old one and its runs stay as they are.

    Example: hacrl benchmarks copy sums sums-numeric --set verifier=numeric
    """
    options = {"name": name}
    for text in field or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ClientProblem(f"--set takes name=value; this is {text!r}.")
        options[key] = value
    with connect() as client:
        path = f"/benchmarks/{object_id(client, '/benchmarks', 'benchmark', benchmark)}/copy"
        _print_new("Benchmark", client.post(path, options), json)


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
    with ExitStack() as stack, connect() as client:
        paths = {"file": file, "held_out_file": held_out}
        files = {key: (path.name, stack.enter_context(path.open("rb"))) for key, path in paths.items() if path}
        _print_new("Benchmark", client.upload("/benchmarks", fields, files), json)


@benchmarks.command("load")
@client_command
def load_benchmark(
    key: Annotated[str, typer.Argument(help="Key of a built-in benchmark; without it they are listed.")] = "",
    location: Annotated[str, typer.Option(help="A copy on the server to take instead of the hub's.")] = "",
    json: AsJson = False,
) -> None:
    """Create one of the built-in benchmarks.

    Example: hacrl benchmarks load gsm8k
    """
    with connect() as client:
        if key:
            body = {"built_in": key, "location": location}
            return _print_new("Benchmark", client.post("/benchmarks/built-in", body), json)
        heads = ["key", "name", "about"]
        rows = client.get("/benchmarks/built-in")
        return print_rows(rows, json, heads, lambda row: [row[head] for head in heads], empty="None.")


def _sweep_path(client: Client, name: str) -> str:
    """Errors: ApiError, ClientProblem."""
    return f"/sweeps/{object_id(client, '/sweeps', 'sweep', name)}"


@sweeps.callback()
@client_command
def list_sweeps(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest.")] = 20,
    json: AsJson = False,
) -> None:
    """The newest sweeps."""
    if not context.invoked_subcommand:
        with connect() as client:
            rows = list(client.pages("/sweeps", most=limit))
        heads = ["id", "name", "launched"]
        print_rows(
            rows, json, heads, lambda row: [row["id"], row["name"], moment(row["created_at"])], empty="No sweep yet."
        )


@sweeps.command("show")
@client_command
def show_sweep(sweep: SweepName, json: AsJson = False) -> None:
    """How far a sweep is, and its runs.

    Example: hacrl sweeps show 3
    """
    with connect() as client:
        detail = client.get(_sweep_path(client, sweep))
    if json:
        return print_json(detail)
    if detail["search"]:
        return _show_search(detail)
    progress = detail["progress"]
    counts = ", ".join(f"{count} {name}" for name, count in progress["counts"].items())
    line(f"{detail['name']} ({detail['id']}): step {progress['steps']} of {progress['total_steps']}; {counts}")
    rows = (
        [run["id"][:8], run["variant"] or run["algorithm"], run["seed"], state(run["state"]), run["step"]]
        for run in detail["runs"]
    )
    table(["id", "variant", "seed", "state", "step"], rows, empty="It has no runs.")
    return None


def _show_search(detail: dict[str, Any]) -> None:
    search = detail["search"]
    counts = ", ".join(f"{count} {name}" for name, count in search["counts"].items())
    why = f" ({search['reason']})" if search["reason"] else ""
    line(f"{detail['name']} ({detail['id']}): {search['state']}{why}; {counts or 'no trial yet'}")
    names = list(detail["request"]["search"]["parameters"])
    rows = (
        [
            f"{trial['number']}{' best' if trial['number'] == search['best'] else ''}",
            (trial["run"] or "")[:8],
            trial["state"],
            "" if trial["value"] is None else f"{trial['value']:.3f}",
            *(_value_text(trial["parameters"][name]) for name in names),
        ]
        for trial in search["trials"]
    )
    table(["trial", "run", "state", "objective", *names], rows, empty="It has no trials yet.")
    importance = search["importance"] or {"shares": {}}
    shares = sorted(importance["shares"].items(), key=lambda item: -item[1]["share"])
    if shares:
        line(f"Importance, from {importance['trials']} completed trials:")
        table(
            ["setting", "share", "range"],
            ([name, f"{one['share']:.0%}", f"{one['low']:.0%} to {one['high']:.0%}"] for name, one in shares),
            empty="",
        )


def _value_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@sweeps.command("stop")
@client_command
def stop_sweep(sweep: SweepName, json: AsJson = False) -> None:
    """End every run of a sweep.

    Example: hacrl sweeps stop 3
    """
    with connect() as client:
        answer = client.post(f"{_sweep_path(client, sweep)}/stop")
    print_json(answer) if json else line(f"{answer['name']}: stop, {counted(len(answer['changed']), 'run')}")


@sweeps.command("delete")
@client_command
def delete_sweep(sweep: SweepName, yes: Yes = False) -> None:
    """Delete a sweep with all its runs, for good.

    Example: hacrl sweeps delete 3
    """
    with connect() as client:
        path = _sweep_path(client, sweep)
        detail = client.get(path)
        agree(f"Delete the sweep {detail['name']!r} and its {counted(len(detail['runs']), 'run')} for good?", yes=yes)
        client.post(f"{path}/delete")
    line(f"Deleted: {detail['name']}, {counted(len(detail['runs']), 'run')}")
