"""Commands that list, tag, archive and delete runs."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from hacrl_web.client.command import (
    AsJson,
    ClientProblem,
    RunNames,
    Yes,
    agree,
    client_command,
    connect,
    find_runs,
    for_each,
)
from hacrl_web.client.show import HACRL, counted, format_number, line, print_json, print_rows, state, table
from workers.contract import number_format

NEWEST = 20
STATES = ["draft", "queued", "starting", "running", "paused", "completed", "failed", "stopped", "lost"]


@client_command
def runs(
    state_: Annotated[
        str | None, typer.Option("--state", help="Only those in this state.", autocompletion=lambda: STATES)
    ] = None,
    sweep: Annotated[int | None, typer.Option(help="Only those of this sweep.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="The archived ones alone.")] = False,
    search: Annotated[str | None, typer.Option(help="Only those with this in their or their sweep's name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest.")] = NEWEST,
    ids: Annotated[bool, typer.Option("--ids", help="Their ids alone, a line each, for other commands.")] = False,
    json: AsJson = False,
) -> None:
    """The newest runs, without the archived ones.

    Example: hacrl runs --tag baseline --state completed
    """
    with connect() as client:
        filters: dict[str, Any] = {
            "state": state_,
            "sweep": sweep,
            "tag": tag,
            "archived": archived,
            "q": search,
        }
        rows = list(client.pages("/runs", most=limit, **filters))
    if ids and not json:
        print(*(UUID(run["id"]) for run in rows), sep="\n", end="\n" if rows else "")
    else:
        heads = ["id", "name", "algorithm", "state", "step", "seed", "tags"]
        is_filtered = any(value for value in filters.values())
        empty = f"No run is like this: {HACRL} runs shows all." if is_filtered else f"No run yet: {HACRL} launch FILE."
        print_rows(rows, json, heads, _cells, empty=empty)


def _cells(run: dict[str, Any]) -> list[Any]:
    step, tags = f"{run['step']}/{run['total_steps']}", ", ".join(run["tags"])
    return [run["id"][:8], run["name"], run["algorithm"], state(run["state"]), step, run["seed"], tags]


@client_command
def tag(
    runs: RunNames,
    add: Annotated[list[str] | None, typer.Option("--add", "-a", help="A tag to add. Repeat it.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", "-r", help="A tag to remove. Repeat it.")] = None,
    json: AsJson = False,
) -> None:
    """Add tags to runs, or remove them.

    Example: hacrl tag swan goose --add baseline --remove draft
    """
    if not (add or remove):
        raise ClientProblem("Name the tags: --add TAG, --remove TAG.")
    removed = {one.strip().lower() for one in remove or []}
    with connect() as client:

        def act(run: dict[str, Any]) -> Any:
            def changed(tags: list[str]) -> list[str]:
                return [*(one for one in tags if one not in removed), *(add or [])]

            return {"run": run["id"], **client.change(f"/runs/{run['id']}/labels", tags=changed)}

        for_each(find_runs(client, runs), act, json, "Tagged")


@client_command
def archive(runs: RunNames, json: AsJson = False) -> None:
    """Archive ended runs. Lists omit them; nothing is deleted.

    Example: hacrl archive swan goose
    """
    with connect() as client:
        matches = find_runs(client, runs)
        for_each(matches, lambda run: client.post(f"/runs/{run['id']}/archive"), json, "Archived")


@client_command
def delete(
    runs: RunNames,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    json: AsJson = False,
) -> None:
    """Delete ended runs for good, after showing what they hold and asking you.

    Example: hacrl delete $(hacrl runs --tag old --ids)
    """
    with connect() as client:
        matches = find_runs(client, runs)
        uses = {run["id"]: client.get(f"/runs/{run['id']}/disk") for run in matches}
        rows = [{"run": run["id"], "name": run["name"], **uses[run["id"]]} for run in matches]
        if dry_run and json:
            print_json(rows)
        elif not json:
            _show_loss(rows)
        if dry_run:
            return
        agree(f"Delete {counted(len(matches), 'run')} for good?", yes=yes)

        def act(run: dict[str, Any]) -> Any:
            client.post(f"/runs/{run['id']}/delete")
            return {"run": run["id"], "name": run["name"], **uses[run["id"]]}

        for_each(matches, act, json, "Deleted")


def _show_loss(uses: list[dict[str, Any]]) -> None:
    """Rows and files of each run, and the total. Files on another host (None) are not deleted."""

    def cells(one: dict[str, Any]) -> list[Any]:
        files = "on another host" if one["files_bytes"] is None else number_format.format_size(one["files_bytes"])
        return [
            one["run"][:8],
            one["name"],
            format_number(one["num_rows"]),
            number_format.format_size(one["rows_bytes"]),
            files,
        ]

    table(["id", "name", "rows", "in the database", "files"], map(cells, uses), empty="No run.")
    if len(uses) > 1:
        total = sum(one["rows_bytes"] + (one["files_bytes"] or 0) for one in uses)
        line(f"{len(uses)} runs, together {number_format.format_size(total)}.")
