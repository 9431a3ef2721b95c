"""Commands for sweeps and built-in benchmarks that take several operations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hacrl_web.client.api import Client
from hacrl_web.client.command import AsJson, Yes, agree, client_command, completer, connect, object_id
from hacrl_web.client.show import counted, line, print_json, print_rows, state, table

SweepName = Annotated[str, typer.Argument(help="Id of a sweep, or its name.", autocompletion=completer("/sweeps"))]


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
            row = client.post("/benchmarks/built-in", body)
            return print_json(row) if json else line(f"Benchmark {row['id']}: {row['name']}")
        heads = ["key", "name", "about"]
        rows = client.get("/benchmarks/built-in")
        return print_rows(rows, json, heads, lambda row: [row[head] for head in heads], empty="None.")


def _sweep_path(client: Client, name: str) -> str:
    """Errors: ApiError, ClientProblem."""
    return f"/sweeps/{object_id(client, '/sweeps', 'sweep', name)}"


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
