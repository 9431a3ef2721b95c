"""Commands for reward functions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hacrl_web.client.command import OPTIONS, AsJson, client_command, connect, object_id
from hacrl_web.client.program import HACRL
from hacrl_web.client.show import line, print_json, print_rows

rewards = typer.Typer(help="List, register and try reward functions.", **OPTIONS)
PATH = "/reward-functions"
File = Annotated[Path, typer.Argument(help="Python file with `reward(question, answer, response, **fields)`.")]


@rewards.callback()
@client_command
def list_functions(context: typer.Context, json: AsJson = False) -> None:
    if not context.invoked_subcommand:
        with connect() as client:
            print_rows(
                list(client.pages(PATH)),
                json,
                ["id", "name", "version", "network"],
                lambda row: [row["id"], row["name"], row["version"], "yes" if row["uses_network"] else ""],
                empty=f"No reward function yet: {HACRL} rewards add FILE.",
            )


@rewards.command("add")
@client_command
def add_function(
    file: File,
    name: Annotated[str, typer.Option(help="Its name; the file's without it.")] = "",
    json: AsJson = False,
) -> None:
    """Register a reward function, or a new version of one that has this name.

    Example: hacrl rewards add steps.py
    """
    name, source = name or file.stem, file.read_text(encoding="utf-8")
    with connect() as client:
        row = next((one for one in client.pages(PATH) if one["name"] == name), None)
        if row is None:
            row = client.post(PATH, {"name": name, "source": source})
        else:
            row = client.json_of(client.request("PUT", f"{PATH}/{row['id']}", json={"source": source}))
    print_json(row) if json else line(f"Reward function {row['id']}: {row['name']}, version {row['version']}")


@rewards.command("try")
@client_command
def try_reward(
    name: Annotated[str, typer.Argument(help="A function, by id or name.")],
    response: Annotated[str, typer.Option(help="The text to reward.")],
    question: Annotated[str, typer.Option(help="The question.")] = "",
    answer: Annotated[str, typer.Option(help="The reference answer.")] = "",
    json: AsJson = False,
) -> None:
    """Print the reward of one response.

    Example: hacrl rewards try steps --question "2*7+3=" --answer 17 --response "so 17"
    """
    with connect() as client:
        pk = object_id(client, PATH, "reward function", name)
        result = client.post(f"{PATH}/{pk}/try", {"question": question, "gold": answer, "response": response})
    reward = "unscorable" if result["reward"] is None else f"{result['reward']:g}"
    print_json(result) if json else line(f"{reward}: {result['reason']}")
