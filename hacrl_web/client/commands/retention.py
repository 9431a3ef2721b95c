"""The command for the retention of a project."""

from __future__ import annotations

from typing import Annotated

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
from workers import number_format

NEVER = "never"


def _days(name: str, text: str) -> int | None:
    """Error: ClientProblem."""
    try:
        return None if text == NEVER else int(text)
    except ValueError:
        raise ClientProblem(f"--set {name}={text}: give a number of days, or {NEVER}.") from None


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
            for name, mark, text in (one.partition("=") for one in changes):
                if not mark or name not in days:
                    raise ClientProblem(f"--set {name}: write one of {', '.join(days)}, = and days or {NEVER}.")
                days[name] = _days(name, text)
            values = {name: value for name, value in days.items() if value is not None}
            loss = client.get(f"{path}/preview", **values)
            if loss["file_runs"] or loss["archived_runs"]:
                agree(f"{_loss_text(loss)} Set the retention?", yes=yes)
            days = client.request("PUT", path, json=days).json()
    print_rows(
        [{"what": name, "days": value} for name, value in days.items()],
        json,
        ["what", "days"],
        lambda row: [row["what"], NEVER if row["days"] is None else row["days"]],
        empty="",
    )


def _loss_text(loss: dict[str, int]) -> str:
    file_size, run_size = (number_format.format_size(loss[name]) for name in ("file_bytes", "archived_bytes"))
    files = f"the checkpoints of {counted(loss['file_runs'], 'run')} (at most {file_size})"
    runs = f"{counted(loss['archived_runs'], 'archived run')} ({run_size})"
    parts = [files] * bool(loss["file_runs"]) + [runs] * bool(loss["archived_runs"])
    return f"Will be deleted permanently: {' and '.join(parts)}."
