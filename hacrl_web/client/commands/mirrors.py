"""Commands for mirrors: where the numbers of a project's runs are sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hacrl_web.client.command import (
    OPTIONS,
    AsJson,
    ClientProblem,
    RunName,
    client_command,
    connect,
    run_id,
)
from hacrl_web.client.commands.quota import ProjectName, project_id
from hacrl_web.client.program import HACRL
from hacrl_web.client.show import line, print_json, print_rows

mirrors = typer.Typer(help="List, add and remove mirrors of a project; choose which runs they send.", **OPTIONS)
TEXTS_LEAVE = "; questions and answers of its runs leave the installation"
MirrorName = Annotated[str, typer.Argument(help="A mirror, by id or name.")]


def _mirror(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    found = [row for row in rows if name in (str(row["id"]), row["name"])]
    if not found:
        raise ClientProblem(f"There is no mirror {name!r}: {HACRL} mirrors lists them.")
    return found[0]


def _progress(row: dict[str, Any]) -> str:
    if not row["is_enabled"]:
        return "paused"
    return row["problem"] or f"{row['num_sent']} runs sent"


@mirrors.callback()
@client_command
def list_mirrors(context: typer.Context, project: ProjectName = "", json: AsJson = False) -> None:
    if not context.invoked_subcommand:
        with connect() as client:
            rows = client.get(f"/projects/{project_id(client, project)}/mirrors")["items"]
        print_rows(
            rows,
            json,
            ["id", "name", "kind", "sends", "rollouts", "state"],
            lambda row: [row["id"], row["name"], row["kind"], row["sends"], row["rollouts"], _progress(row)],
            empty=f"No mirror yet: {HACRL} mirrors add KIND.",
        )


@mirrors.command("add")
@client_command
def add_mirror(
    kind: Annotated[str, typer.Argument(help="tensorboard, mlflow, wandb or trackio.")],
    name: Annotated[str, typer.Option(help="Its name; the kind's without it.")] = "",
    option: Annotated[
        list[str] | None, typer.Option("--set", help="An option: url=https://mlflow.example.org.")
    ] = None,
    secret_file: Annotated[Path | None, typer.Option(help="A file with its key or password.")] = None,
    sends: Annotated[str, typer.Option(help="new: every run from now on; chosen: chosen runs.")] = "new",
    rollouts: Annotated[
        int, typer.Option(help="Of each agent, 0 to 20: their questions and answers then leave the installation.")
    ] = 0,
    rollout_interval: Annotated[int, typer.Option(help="Steps between those whose rollouts are sent.")] = 1,
    project: ProjectName = "",
    json: AsJson = False,
) -> None:
    """Add a mirror, as an admin of the project.

    Example: hacrl mirrors add mlflow --set url=https://mlflow.example.org
    """
    pairs = [text.partition("=") for text in option or []]
    if bad := [name for name, mark, _ in pairs if not mark]:
        raise ClientProblem(f"--set {bad[0]}: write OPTION=VALUE.")
    secret = secret_file.read_text(encoding="utf-8").strip() if secret_file else ""
    body: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "options": {key: value for key, _, value in pairs},
        "secret": secret,
    }
    body |= {"sends": sends, "rollouts": rollouts, "rollout_interval": rollout_interval}
    with connect() as client:
        row = client.post(f"/projects/{project_id(client, project)}/mirrors", body)
    print_json(row) if json else line(f"Mirror {row['id']}: {row['name']}{TEXTS_LEAVE if row['rollouts'] else ''}")


@mirrors.command("remove")
@client_command
def remove_mirror(mirror: MirrorName, project: ProjectName = "") -> None:
    """Remove a mirror. What it sent stays there.

    Example: hacrl mirrors remove tensorboard
    """
    with connect() as client:
        path = f"/projects/{project_id(client, project)}/mirrors"
        row = _mirror(client.get(path)["items"], mirror)
        client.delete(f"{path}/{row['id']}")
    line(f"Removed: {row['name']}")


@mirrors.command("choose")
@client_command
def choose_run(
    run: RunName, mirror: MirrorName, choice: Annotated[str, typer.Argument(help="on, off or default.")]
) -> None:
    """Whether a mirror sends a run.

    Example: hacrl mirrors choose swan tensorboard on
    """
    with connect() as client:
        path = f"/runs/{run_id(client, run)}/mirrors"
        row = _mirror(client.get(path)["items"], mirror)
        client.request("PUT", f"{path}/{row['id']}", json={"choice": choice})
    line(f"{row['name']}: {choice}")
