"""`hacrl launch`: a run or a sweep, from a file or a preset."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hacrl_web.client.api import ApiError, Client, is_sweep
from hacrl_web.client.command import COMPLETION_S, AsJson, ClientProblem, client_command, completer, connect
from hacrl_web.client.commands import watch as watching
from hacrl_web.client.launch_file import LaunchFile, read_launch_file, with_ids
from hacrl_web.client.show import counted, format_number, line, print_json
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check it and estimate its cost.")] = False,
    key: Annotated[str, typer.Option(help="Idempotency key: the same key launches once.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Stay and show the run until it has ended.")] = False,
    json: AsJson = False,
) -> None:
    """Launch a run or a sweep from a file, from a preset, or both. With `algorithms` or `seeds` it is a sweep.

    Example: hacrl launch run.yaml --seed 3 --watch
    Or: hacrl launch --preset gpu-24gb --group pair --benchmark gsm8k --name first
    """
    if file is None and preset is None:
        raise ClientProblem("Name a file, or a preset: --preset NAME.")
    launch_file = LaunchFile({}, {}) if file is None else read_launch_file(file)
    changes = {"name": name, "seed": seed, "group": group, "benchmark": benchmark, "preset": preset}
    request = launch_file.values | {field: value for field, value in changes.items() if value is not None}
    for field, section in (("group", "agents"), ("benchmark", "data")):
        if changes[field] is not None:
            request.pop(section, None)  # the option replaces the file's
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
            raise _with_confirmations(launch_file.located(error)) from None
        if json:
            print_json(answer)
        else:
            kind = "Sweep" if is_sweep(request) else "Run"
            kind = f"Draft of a {kind.lower()}" if request.get("draft") else kind
            line(f"{kind} {answer['id']}: {answer['name']}, {client.url}{answer['url']}")
        if watch and not is_sweep(request):
            watching.watch_run(client, answer["id"])
    return None


def _with_confirmations(error: ApiError) -> ApiError:
    """The same refusal, with the options that confirm its cautions."""
    fixes = [(one["code"], fix) for one in error.errors for fix in one.get("fixes", ())]
    codes = dict.fromkeys(code for code, fix in fixes if "confirm" in fix["request"])
    if not codes:
        return error
    words = " ".join(f"--confirm {code}" for code in codes)
    return ApiError(error.status, [*error.errors, {"message": f"To launch it all the same: {words}", "field": None}])


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
