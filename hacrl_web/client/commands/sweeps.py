"""Commands for sweeps: runs that were launched together."""

from __future__ import annotations

from typing import Annotated

import typer

from hacrl_web.client.api import Client
from hacrl_web.client.command import OPTIONS, AsJson, Yes, agree, client_command, completer, connect, object_id
from hacrl_web.client.show import counted, line, print_json, print_rows, state, table

NEWEST = 20
sweeps = typer.Typer(help="List and show sweeps; stop or delete all their runs.", **OPTIONS)
SweepName = Annotated[str, typer.Argument(help="Id of a sweep, or its name.", autocompletion=completer("/sweeps"))]


def add_to(app: typer.Typer) -> None:
    app.add_typer(sweeps, name="sweeps")


def _path(client: Client, name: str) -> str:
    """Errors: ApiError, ClientProblem."""
    return f"/sweeps/{object_id(client, '/sweeps', 'sweep', name)}"


@sweeps.callback()
@client_command
def list_sweeps(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest.")] = NEWEST,
    json: AsJson = False,
) -> None:
    """The newest sweeps."""
    if not context.invoked_subcommand:
        with connect() as client:
            rows = list(client.pages("/sweeps", most=limit))
        heads = ["id", "name", "launched"]
        print_rows(rows, json, heads, lambda row: [row["id"], row["name"], row["created_at"]], empty="No sweep yet.")


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


@sweeps.command("stop")
@client_command
def stop_sweep(sweep: SweepName, json: AsJson = False) -> None:
    """End every run of a sweep.

    Example: hacrl sweeps stop 3
    """
    with connect() as client:
        answer = client.post(f"{_path(client, sweep)}/stop")
    print_json(answer) if json else line(f"{answer['name']}: stop, {counted(len(answer['changed']), 'run')}")


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
