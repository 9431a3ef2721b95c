"""Commands for judges."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from hacrl_web.client.command import OPTIONS, AsJson, ClientProblem, client_command, connect, object_id
from hacrl_web.client.program import HACRL
from hacrl_web.client.show import line, print_json, print_rows

judges = typer.Typer(help="List, register and try judges.", **OPTIONS)
PATH = "/judges"
File = Annotated[Path, typer.Argument(help="YAML or JSON settings of the judge, as in docs/rewards.md.")]


@judges.callback()
@client_command
def list_judges(context: typer.Context, json: AsJson = False) -> None:
    if not context.invoked_subcommand:
        with connect() as client:
            print_rows(
                list(client.pages(PATH)),
                json,
                ["id", "name", "kind", "model", "version"],
                lambda row: [row["id"], row["name"], row["settings"]["kind"], row["settings"]["model"], row["version"]],
                empty=f"No judge yet: {HACRL} judges add FILE.",
            )


@judges.command("add")
@client_command
def add_judge(
    file: File,
    name: Annotated[str, typer.Option(help="Its name; the file's without it.")] = "",
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the key of its address from stdin.")] = False,
    json: AsJson = False,
) -> None:
    """Register a judge, or change the one that has this name.

    Example: hacrl judges add helpful.yaml --key-stdin
    """
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError, AttributeError, yaml.YAMLError, RecursionError):
        raise ClientProblem(f"{file} cannot be read as YAML or JSON.") from None
    if not isinstance(settings, dict):
        raise ClientProblem(f"{file} holds no settings, such as `kind: endpoint`.")
    key = sys.stdin.readline().strip() if key_stdin else ""
    name = name or file.stem
    with connect() as client:
        row = next((one for one in client.pages(PATH) if one["name"] == name), None)
        if row is None:
            row = client.post(PATH, {"name": name, "settings": settings, "key": key})
        else:
            body = {"settings": settings, "key": key}
            row = client.json_of(client.request("PUT", f"{PATH}/{row['id']}", json=body))
    print_json(row) if json else line(f"Judge {row['id']}: {row['name']}, version {row['version']}")


@judges.command("try")
@client_command
def try_one_judge(
    name: Annotated[str, typer.Argument(help="A judge, by id or name.")],
    response: Annotated[str, typer.Option(help="The text to judge.")],
    question: Annotated[str, typer.Option(help="The question.")] = "",
    answer: Annotated[str, typer.Option(help="The reference answer.")] = "",
    json: AsJson = False,
) -> None:
    """Print the reward that a judge gives to one response.

    Example: hacrl judges try helpful --question "2*7+3=" --answer 17 --response "so 17"
    """
    with connect() as client:
        pk = object_id(client, PATH, "judge", name)
        result = client.post(f"{PATH}/{pk}/try", {"question": question, "gold": answer, "response": response})
    reward = "unscorable" if result["reward"] is None else f"{result['reward']:g}"
    print_json(result) if json else line(f"{reward}: {result['reason']}")
