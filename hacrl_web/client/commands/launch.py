"""Commands that launch a run or a sweep, and that list the presets with which they may be launched."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hacrl_web.client.api import ApiError, Client, is_sweep
from hacrl_web.client.command import COMPLETION_S, AsJson, ClientProblem, client_command, completer, connect, object_id
from hacrl_web.client.commands import watch as watching
from hacrl_web.client.launch_file import LaunchFile, read_launch_file, with_ids
from hacrl_web.client.show import counted, format_number, line, print_json, print_rows, table
from workers.contract import number_format


def preset_names(incomplete: str) -> list[str]:
    """Completion for a shell: the names of the presets."""
    try:
        with connect(timeout_s=COMPLETION_S) as client:
            return [row["name"] for row in client.get("/presets")["items"] if row["name"].startswith(incomplete)]
    except Exception:
        return []  # a message would break the command line


@client_command
def launch(
    file: Annotated[
        str | None, typer.Argument(help="YAML or JSON: name, group, benchmark, algorithm ...; - for stdin.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="For what the file leaves out: one of hacrl presets.", autocompletion=preset_names),
    ] = None,
    name: Annotated[str | None, typer.Option(help="In place of the file's.")] = None,
    seed: Annotated[int | None, typer.Option(help="In place of the file's.")] = None,
    group: Annotated[
        str | None, typer.Option(help="In place of the file's, by id or name.", autocompletion=completer("/groups"))
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="In place of the file's, by id or name.", autocompletion=completer("/benchmarks"))
    ] = None,
    confirm: Annotated[list[str] | None, typer.Option(help="Word in brackets behind a caution. Repeat it.")] = None,
    draft: Annotated[bool, typer.Option("--draft", help="Save it as a draft and queue nothing.")] = False,
    search: Annotated[str | None, typer.Option(help="Of a sweep: grid, random or optuna.")] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(help='Of a sweep: "agents.*.lora_rank=8, 16" or in a search "alpha=1..4". Repeat it.'),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Runs of a search.")] = None,
    at_once: Annotated[
        int | None, typer.Option("--at-once", help="Trials of a search under way; default: as workers take.")
    ] = None,
    pruner: Annotated[str | None, typer.Option(help="Of a search: none, median or halving.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check it and estimate its cost.")] = False,
    key: Annotated[str, typer.Option(help="Idempotency key: the same key launches once.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Stay and show the run until it has ended.")] = False,
    json: AsJson = False,
) -> None:
    """Launch a run or a sweep from a file, from a preset, or both. With `algorithms` or `seeds` it is a sweep.

    Example: hacrl launch run.yaml --seed 3 --watch
    Or: hacrl launch --preset gpu-24gb --group pair --benchmark gsm8k --name first
    Or: hacrl launch sweep.yaml --search optuna --trials 20 --vary "training.learning_rate=1e-6..1e-4 log"
    """
    if file is None and preset is None:
        raise ClientProblem("Name a file, or a preset: --preset NAME.")
    launch_file = LaunchFile({}, {}) if file is None else read_launch_file(file)
    changes = {"name": name, "seed": seed, "group": group, "benchmark": benchmark, "preset": preset}
    request = launch_file.values | {field: value for field, value in changes.items() if value is not None}
    for field, section in (("group", "agents"), ("benchmark", "data")):
        if changes[field] is not None:
            request.pop(section, None)  # the option replaces the file's
    options = {"method": search, "trials": trials, "at_once": at_once, "pruner": pruner}
    request = with_search(request, {name: value for name, value in options.items() if value is not None}, vary or [])
    if draft:
        request["draft"] = True
    if request.get("draft") and watch:
        raise ClientProblem("A draft is not trained: leave out --watch.")
    if confirm:
        old = request.get("confirm")
        request["confirm"] = [*(old if isinstance(old, list) else []), *confirm]
    with connect() as client:
        request = with_ids(client, request)
        try:
            if dry_run:
                return _print_cost(client, request, json)
            answer = client.launch(request, key=key)
        except ApiError as error:
            raise launch_file.located(error) from None
        if json:
            print_json(answer)
        else:
            kind = "Sweep" if is_sweep(request) else "Run"
            kind = f"Draft of a {kind.lower()}" if request.get("draft") else kind
            line(f"{kind} {answer['id']}: {answer['name']}, {client.url}{answer['url']}")
        if watch and not is_sweep(request):
            watching.watch_run(client, answer["id"])
    return None


def with_search(request: dict[str, Any], options: dict[str, Any], vary: list[str]) -> dict[str, Any]:
    """The request with these settings of its search or grid in place of the file's. Error: ClientProblem."""
    if not options and not vary:
        return request
    parameters = {}
    for text in vary:
        name, equals, values = text.partition("=")
        if not equals:
            raise ClientProblem(f"--vary takes SETTING=VALUES, such as alpha=1..4. You gave {text!r}.")
        parameters[name.strip()] = values.strip()
    of_file = request.get("search")
    search = {**(of_file if isinstance(of_file, dict) else {}), **options}
    if search.get("method", "grid") == "grid" and parameters:
        before = request.get("grid")
        lists = {name: values.replace(",", " ").split() for name, values in parameters.items()}
        request = {**request, "grid": {**(before if isinstance(before, dict) else {}), **lists}}
        return {**request, "search": search} if search else request
    if parameters:
        before = search.get("parameters")
        search["parameters"] = {**(before if isinstance(before, dict) else {}), **parameters}
    return {**request, "search": search}


def _print_cost(client: Client, request: dict[str, Any], json: bool) -> None:
    cost = client.post("/sweeps/estimate" if is_sweep(request) else "/runs/estimate", request)
    size = f"{counted(cost['runs'], 'run')}, {format_number(cost['rollouts'])} rollouts"
    seconds = "unknown" if cost["device_seconds"] is None else number_format.format_duration(cost["device_seconds"])
    if json:
        print_json(cost)
        return
    line(f"{size}, training time {seconds}. {cost['basis']}")
    if cost["memory"]:
        line(f"Memory: {cost['memory']}.")
    for note in cost["void_settings"]:
        line(note)


@client_command
def presets(
    name: Annotated[str | None, typer.Argument(help="Show all settings of this one.")] = None,
    group: Annotated[
        str | None, typer.Option(help="What each needs with it, by id or name.", autocompletion=completer("/groups"))
    ] = None,
    json: AsJson = False,
) -> None:
    """The presets of hacrl launch, and the memory that each needs with a group.

    Example: hacrl presets --group pair
    Or: hacrl presets gpu-24gb
    """
    with connect() as client:
        pk = None if group is None else object_id(client, "/groups", "group", group)
        rows = client.get("/presets", group=pk)["items"]
    if name is not None:
        return _print_preset(rows, name, json)
    return print_rows(rows, json, ["name", "about", "memory"], _cells, empty="No preset.")


def _cells(row: dict[str, Any]) -> list[Any]:
    memory = row["memory"]
    text = "" if memory is None else memory["text"] if memory["fits"] else f"does not fit. {memory['text']}"
    return [row["name"], row["label"], text]


def _print_preset(rows: list[dict[str, Any]], name: str, json: bool) -> None:
    """Error: ClientProblem where there is none of this name."""
    row = next((row for row in rows if row["name"] == name), None)
    if row is None:
        raise ClientProblem(f"There is no preset {name!r}. There are: {', '.join(row['name'] for row in rows)}.")
    if json:
        return print_json(row)
    line(f"{row['label']}. {_cells(row)[2]}")
    settings = [
        (f"{section}.{key}", "" if value is None else value)
        for section, values in row["settings"].items()
        for key, value in values.items()
    ]
    return table(["setting", "value"], settings, empty="No setting.")
