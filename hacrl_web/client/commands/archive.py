"""Commands for existing runs: show, tag, archive, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.text import Text

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
from hacrl_web.client.show import counted, format_number, line, print_json, state, table


def add_to(app: typer.Typer) -> None:
    for act in (show, tag, archive, delete):
        app.command()(act)


@client_command
def show(run: RunName, json: AsJson = False) -> None:
    """A run: its progress, settings, tags and notes.

    Example: hacrl show swan
    """
    with connect() as client:
        detail = client.get(f"/runs/{run_id(client, run)}")
    if json:
        return print_json(detail)
    pairs = [
        ("name", detail["name"]),
        ("id", detail["id"]),
        ("page", f"{client.url}{detail['url']}"),
        ("state", Text.assemble(state(detail["state"]), "  archived" if detail["archived_at"] else "")),
        ("reason", detail["reason"]),
        ("step", f"{detail['step']} of {detail['total_steps']}"),
        ("algorithm", detail["variant"] or detail["algorithm"]),
        *((name, detail[name]) for name in ("seed", "sweep", "retry_of", "cloned_from", "place_in_queue")),
        ("host", detail["worker_host"]),
        *((name.removesuffix("_at"), detail[name]) for name in ("created_at", "started_at", "finished_at")),
        ("tags", ", ".join(detail["tags"])),
        ("notes", detail["notes"]),
    ]
    rows = [(name, value) for name, value in pairs if value not in (None, "")]
    table(["", " "], rows, empty="", folded=frozenset({" "}))
    return None


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
            return print_json(rows)
        if not json:
            _show_loss(rows)
        if dry_run:
            return None
        agree(f"Delete {counted(len(matches), 'run')} for good?", yes=yes)

        def act(run: dict[str, Any]) -> Any:
            client.post(f"/runs/{run['id']}/delete")
            return {"run": run["id"], "name": run["name"], **uses[run["id"]]}

        for_each(matches, act, json, "Deleted")
    return None


def _show_loss(uses: list[dict[str, Any]]) -> None:
    """Rows and files of each run, and the total. Files on another host (None) are not deleted."""

    def cells(one: dict[str, Any]) -> list[Any]:
        files = "on another host" if one["files_bytes"] is None else decimal(one["files_bytes"])
        return [one["run"][:8], one["name"], format_number(one["num_rows"]), decimal(one["rows_bytes"]), files]

    table(["id", "name", "rows", "in the database", "files"], map(cells, uses), empty="No run.")
    if len(uses) > 1:
        total = sum(one["rows_bytes"] + (one["files_bytes"] or 0) for one in uses)
        line(f"{len(uses)} runs, together {decimal(total)}.")
