"""Commands for sweeps: the runs that were launched together, as one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hacrl_web.client.api import Client
from hacrl_web.client.command import OPTIONS, AsJson, Yes, agree, client_command, completer, connect, object_id
from hacrl_web.client.show import counted, line, print_json, state, table

NEWEST = 20
sweeps = typer.Typer(help="List and look at sweeps; stop, pause, resume, retry or delete all their runs.", **OPTIONS)
SweepName = Annotated[str, typer.Argument(help="Id of a sweep, or its name.", autocompletion=completer("/sweeps"))]


def add_to(app: typer.Typer) -> None:
    app.add_typer(sweeps, name="sweeps")


def _path(client: Client, name: str) -> str:
    """Errors: ApiError, Problem."""
    return f"/sweeps/{object_id(client, '/sweeps', 'sweep', name)}"


@sweeps.callback()
@client_command
def list_sweeps(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest.")] = NEWEST,
    json: AsJson = False,
) -> None:
    """The newest sweeps."""
    if context.invoked_subcommand:
        return None
    with connect() as client:
        rows = list(client.pages("/sweeps", most=limit))
    if json:
        return print_json(rows)
    table(["id", "name", "launched"], ([s["id"], s["name"], s["created_at"]] for s in rows), empty="No sweep yet.")
    return None


@sweeps.command("show")
@client_command
def show_sweep(sweep: SweepName, json: AsJson = False) -> None:
    """How far a sweep is, and its runs.

    Example: hacrl sweeps show 3
    """
    with connect() as client:
        detail = client.get(_path(client, sweep))
    if json:
        return print_json(detail)
    progress = detail["progress"]
    counts = ", ".join(f"{count} {name}" for name, count in progress["counts"].items())
    line(f"{detail['name']} ({detail['id']}): step {progress['steps']} of {progress['total_steps']}; {counts}")
    rows = (
        [run["id"][:8], run["variant"] or run["algorithm"], run["seed"], state(run["state"]), run["step"]]
        for run in detail["runs"]
    )
    table(["id", "variant", "seed", "state", "step"], rows, empty="It has no runs.")
    return None


def _order(name: str, what: str, body: dict[str, Any] | None, json: bool) -> None:
    with connect() as client:
        answer = client.post(f"{_path(client, name)}/{what}", body)
    print_json(answer) if json else line(f"{answer['name']}: {what}, {counted(len(answer['changed']), 'run')}")


@sweeps.command("stop")
@client_command
def stop_sweep(sweep: SweepName, json: AsJson = False) -> None:
    """End every run of a sweep.

    Example: hacrl sweeps stop 3
    """
    _order(sweep, "stop", None, json)


@sweeps.command("delete")
@client_command
def delete_sweep(sweep: SweepName, yes: Yes = False) -> None:
    """Delete a sweep with all its runs, for good.

    Example: hacrl sweeps delete 3
    """
    with connect() as client:
        path = _path(client, sweep)
        detail = client.get(path)
        agree(f"Delete the sweep {detail['name']!r} and its {counted(len(detail['runs']), 'run')} for good?", yes=yes)
        client.post(f"{path}/delete")
    line(f"Deleted: {detail['name']}, {counted(len(detail['runs']), 'run')}")
