"""Commands that compare runs, export files, and import a run."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import typer
import yaml

from hacrl_web.client.command import (
    AsJson,
    ClientProblem,
    client_command,
    complete_run,
    connect,
    object_id,
    run_id,
)
from hacrl_web.client.show import HACRL, format_difference, format_number, line, print_json, print_text, table
from workers.contract import number_format


@client_command
def compare(
    runs: Annotated[list[str], typer.Argument(help="Runs, by id or name; at most 8.", autocompletion=complete_run)],
    metric: Annotated[str | None, typer.Option(help="Without it the first that they recorded.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The run to which the others are compared.", autocompletion=complete_run)
    ] = None,
    json: AsJson = False,
) -> None:
    """Runs side by side. Best and last of each agent, the differences to a baseline, and the settings that differ.

    Example: hacrl compare swan goose --metric capability --baseline goose
    """
    with connect() as client:
        ids = [run_id(client, name) for name in runs]
        other = run_id(client, baseline) if baseline else None
        answer = client.get("/compare/table", runs=ids, metric=metric, baseline=other)
    if json:
        return print_json(answer)
    # Numbers of runs, because a name of 80 characters in each row leaves no room for the values.
    places = {run["id"]: str(place) for place, run in enumerate(answer["runs"], 1)}
    table(
        ["run", "name", "id"],
        ([places[r["id"]], r["name"], r["id"][:8]] for r in answer["runs"]),
        empty="No run.",
    )
    line(f"{answer['metric']}, differences to run {places[answer['baseline']]}")
    cells = (
        [
            places[row["run"]],
            row["agent"] or "mean over agents",
            format_number(row["best"], answer["metric"]),
            format_number(row["best_step"]),
            format_number(row["last"], answer["metric"]),
            format_difference(row["last_difference"], answer["metric"]),
        ]
        for row in answer["rows"]
    )
    table(["run", "agent", "best", "at step", "last", "difference"], cells, empty="Nothing was recorded yet.")
    heads = [f"run {place}" for place in places.values()]
    differing = ([one["path"], *(json_module.dumps(value) for value in one["values"])] for one in answer["differing"])
    table(["setting", *heads], differing, empty="No setting differs.", folded=frozenset(heads))
    return None


IMPORT_TIMEOUT_S = 1800.0
ExportKind = Literal[
    "request", "series", "log", "checkpoint", "board", "metrics", "rollouts", "contributions", "bundle"
]
# Where each is, below its run; tables also below a sweep.
FILES = {
    "request": "/request",
    "series": "/series",
    "log": "/log.txt",
    "checkpoint": "/checkpoints/{step}/{agent}.zip",
    **{table: f"/export/{table}.{{kind}}" for table in ("metrics", "rollouts", "contributions")},
    "bundle": "/bundle.zip",
}


@client_command
def export(
    what: Annotated[ExportKind, typer.Argument(help="request: YAML that launches a run again; series: its numbers.")],
    name: Annotated[
        str, typer.Argument(help="The run; for a board its sweep, by id or name, or `group=1&benchmark=2`.")
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; without it standard output.")] = None,
    kind: Annotated[
        str,
        typer.Option("--format", help="Of a board: json, csv, tex or html. Of a table of a run: jsonl or parquet."),
    ] = "",
    sweep: Annotated[bool, typer.Option(help="NAME is a sweep: the table of all its runs.")] = False,
    step: Annotated[int | None, typer.Option(help="Of a checkpoint.")] = None,
    agent: Annotated[int, typer.Option(help="The agent's place in a checkpoint.")] = 0,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Of a bundle: with checkpoints.")] = False,
) -> None:
    """A run, a table of a run or a sweep, or a board as a file.

    A bundle is a run as one file that another installation imports.

    Example: hacrl export rollouts swan --format parquet -o rollouts.parquet
    """
    if what == "checkpoint" and step is None:
        raise ClientProblem(f"Name the step: --step N; {HACRL} checkpoints RUN lists them.")
    with connect() as client:
        parameters: dict[str, Any] = {"checkpoints": True} if checkpoints else {}
        if what == "board":
            query = name if "=" in name else f"sweep={object_id(client, '/sweeps', 'sweep', name)}"
            parameters = dict(parse_qs(query, keep_blank_values=True))
            path = "/boards/table" if kind in ("", "json") else f"/boards/file/{kind}"
        else:
            of = f"/sweeps/{object_id(client, '/sweeps', 'sweep', name)}" if sweep else f"/runs/{run_id(client, name)}"
            path = of + FILES[what].format(kind=kind or "jsonl", step=step, agent=agent)
        if what in ("request", "series"):
            answer = client.get(path)
            is_yaml = what == "request"
            text = yaml.safe_dump(answer, sort_keys=False) if is_yaml else json_module.dumps(answer) + "\n"
            output.write_text(text) if output else print(text, end="")
            return None
        if output is None and what == "board":
            return print_text(client.request("GET", path, params=parameters).text)
        if output is None:
            raise ClientProblem("Name the file: --output FILE.")
        size = client.save(path, output, **parameters)
    return line(f"{output}: {number_format.format_size(size)}")


@client_command
def import_run(
    file: Annotated[Path, typer.Argument(help="A bundle, as `export bundle` writes it.")], json: AsJson = False
) -> None:
    """Import a run that another installation exported, into your current project.

    Example: hacrl import swan.hacrl.zip
    """
    with connect(timeout_s=IMPORT_TIMEOUT_S) as client, file.open("rb") as content:
        answer = client.upload("/bundles", {}, {"file": (file.name, content)})
    if json:
        return print_json(answer)
    line(f"Imported: {answer['name']} ({answer['id'][:8]})")
    for note in answer["notes"]:
        line(note)
    return None
