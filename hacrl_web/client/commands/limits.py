"""The commands for the quota and the retention of a project."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hacrl_web.client.command import (
    AsJson,
    ClientProblem,
    ProjectName,
    Yes,
    agree,
    client_command,
    connect,
    project_id,
)
from hacrl_web.client.show import counted, print_rows
from workers.contract.number_format import format_size

NO_LIMIT, NEVER = "none", "never"
FRACTIONS = ("gpu_hours", "disk_gib")


def changed(values: dict[str, Any], changes: list[str], unlimited: str) -> dict[str, Any]:
    """The values with NAME=NUMBER or NAME=`unlimited` in place. Error: ClientProblem."""
    values = dict(values)
    for name, equals, text in (one.partition("=") for one in changes):
        if not equals or name not in values:
            raise ClientProblem(f"--set {name}: write one of {', '.join(values)}, = and a number or {unlimited}.")
        try:
            values[name] = None if text == unlimited else float(text) if name in FRACTIONS else int(text)
        except ValueError:
            raise ClientProblem(f"--set {name}={text}: give a number, or {unlimited}.") from None
    return values


@client_command
def quota(
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="A limit, as staff: running=4, or running=none for no limit.")
    ] = None,
    project: ProjectName = "",
    json: AsJson = False,
) -> None:
    """Show what a project uses and may use; --set changes limits.

    Example: hacrl quota --project nlp --set running=4 --set gpu_hours=500
    """
    with connect() as client:
        path = f"/projects/{project_id(client, project)}/quota"
        answer = client.get(path)
        if changes:
            answer = client.request("PUT", path, json=changed(answer["limits"], changes, NO_LIMIT)).json()
    rows = [{"what": name, "used": used, "limit": answer["limits"][name]} for name, used in answer["use"].items()]
    print_rows(
        rows,
        json,
        ["what", "used", "limit"],
        lambda row: [row["what"], f"{row['used']:g}", NO_LIMIT if row["limit"] is None else f"{row['limit']:g}"],
        empty="No quota.",
    )


@client_command
def retention(
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="As staff: checkpoint_days=30, archived_days=90, or checkpoint_days=never."),
    ] = None,
    project: ProjectName = "",
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Show after how many days a project's checkpoints and archived runs are removed; --set changes it.

    Before a change it shows what would be removed now, and asks you.

    Example: hacrl retention --project nlp --set checkpoint_days=30
    """
    with connect() as client:
        path = f"/projects/{project_id(client, project)}/retention"
        days = client.get(path)
        if changes:
            days = changed(days, changes, NEVER)
            loss = client.get(f"{path}/preview", **days)
            if loss["file_runs"] or loss["archived_runs"]:
                agree(f"{_loss_text(loss)} Set the retention?", yes=yes)
            days = client.request("PUT", path, json=days).json()
    rows = [{"what": name, "days": value} for name, value in days.items()]
    print_rows(
        rows, json, ["what", "days"], lambda row: [row["what"], NEVER if row["days"] is None else row["days"]], empty=""
    )


def _loss_text(loss: dict[str, int]) -> str:
    files = f"the checkpoints of {counted(loss['file_runs'], 'run')} ({format_size(loss['file_bytes'])} at most)"
    runs = f"{counted(loss['archived_runs'], 'archived run')} ({format_size(loss['archived_bytes'])})"
    return f"Will be deleted permanently: {files} and {runs}."
