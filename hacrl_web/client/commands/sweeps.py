"""`hacrl sweeps show`: how far a sweep is, with its runs, or the trials of a search."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from hacrl_web.client.command import AsJson, client_command, completer, connect, object_id
from hacrl_web.client.show import line, print_json, state, table

SweepName = Annotated[str, typer.Argument(help="Id of a sweep, or its name.", autocompletion=completer("/sweeps"))]


@client_command
def show_sweep(sweep: SweepName, json: AsJson = False) -> None:
    """How far a sweep is, and its runs.

    Example: hacrl sweeps show 3
    """
    with connect() as client:
        detail = client.get(f"/sweeps/{object_id(client, '/sweeps', 'sweep', sweep)}")
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
    runs = {run["id"]: run["state"] for run in detail["runs"]}
    # A trial is under way from its draw to its end; its run tells whether it still waits.
    states = [
        runs.get(one["run"], one["state"]) if one["state"] == "running" else one["state"] for one in search["trials"]
    ]
    counts = ", ".join(f"{count} {name}" for name, count in Counter(states).items())
    why = f" ({search['reason']})" if search["reason"] else ""
    line(f"{detail['name']} ({detail['id']}): {search['state']}{why}; {counts or 'no trial yet'}")
    names = list(detail["request"]["search"]["parameters"])
    rows = (
        [
            f"{trial['number']}{' best' if trial['number'] == search['best'] else ''}",
            (trial["run"] or "")[:8],
            state,
            "" if trial["value"] is None else f"{trial['value']:.3f}",
            *(_value_text(trial["parameters"][name]) for name in names),
        ]
        for trial, state in zip(search["trials"], states, strict=True)
    )
    table(["trial", "run", "state", "objective", *names], rows, empty="It has no trials yet.")


def _value_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
