"""Commands that list, launch, control, tag, archive and delete runs."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qs
from uuid import UUID

import typer

from hacrl_web.client.api import Client
from hacrl_web.client.command import (
    AsJson,
    ClientProblem,
    RunName,
    RunNames,
    Yes,
    agree,
    client_command,
    connect,
    find_runs,
    for_each,
    run_id,
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
    view: Annotated[str | None, typer.Option(help="The filters of this saved view.")] = None,
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
            "archived": archived or None,
            "q": search,
        }
        filters = _filters_of_view(client, view) | {name: one for name, one in filters.items() if one is not None}
        rows = list(client.pages("/runs", most=limit, **({"archived": False} | filters)))
    if ids and not json:
        print(*(UUID(run["id"]) for run in rows), sep="\n", end="\n" if rows else "")
    else:
        heads = ["id", "name", "algorithm", "state", "step", "seed", "tags"]
        print_rows(rows, json, heads, _cells, empty=f"No run yet: {HACRL} launch FILE.")


def _filters_of_view(client: Client, name: str | None) -> dict[str, Any]:
    """The filters of a saved view that the API knows. Error: ClientProblem for a name that no view has."""
    if name is None:
        return {}
    views = {one["name"]: one["query"] for one in client.pages("/run-views")}
    if name not in views:
        raise ClientProblem(f"No view is called {name}. There are: {', '.join(views) or 'none'}.")
    values = {key: of_key[-1] for key, of_key in parse_qs(views[name]).items()}
    filters: dict[str, Any] = {key: values[key] for key in ("tag", "q", "state") if key in values}
    if filters.get("state") == "held":
        raise ClientProblem(f"View {name} shows the runs that train now: hacrl runs --state running.")
    return filters | ({"archived": True} if "archived" in values else {})


def _cells(run: dict[str, Any]) -> list[Any]:
    step, tags = f"{run['step']}/{run['total_steps']}", ", ".join(run["tags"])
    return [run["id"][:8], run["name"], run["algorithm"], state(run["state"]), step, run["seed"], tags]


@client_command
def queue(
    run: RunName,
    place: Annotated[int | None, typer.Option(min=1, help="Among your own waiting runs; 1 is the next.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher starts first; above 0 is for staff.")] = None,
    json: AsJson = False,
) -> None:
    """The place of a waiting run in the queue. With --place or --priority it is changed.

    Example: hacrl queue swan --place 1
    """
    with connect() as client:
        path = f"/runs/{run_id(client, run)}"
        changes = {name: value for name, value in (("place", place), ("priority", priority)) if value is not None}
        answer = client.post(f"{path}/queue", changes) if changes else client.get(path)
    position = f"place {answer['place_in_queue']}" if answer["place_in_queue"] else answer["state"]
    print_json(answer) if json else line(f"{answer['name']}: {position}, priority {answer['priority']}")


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
