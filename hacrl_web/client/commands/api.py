"""`hacrl api`: any operation of the REST API, for acts that have no command of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hacrl_web.client.command import ClientProblem, client_command, connect
from hacrl_web.client.show import print_json

VERBS = ("GET", "POST", "PUT", "DELETE")


def add_to(app: typer.Typer) -> None:
    app.command("api")(call_api)


@client_command
def call_api(
    method: Annotated[str, typer.Argument(help="GET, POST, PUT or DELETE.")],
    path: Annotated[str, typer.Argument(help="Below /api/v1, such as /runs; /api/docs of the installation lists all.")],
    data: Annotated[
        str, typer.Option("--data", "-d", help="The body as JSON, @FILE, or - for standard input. PUT: what changes.")
    ] = "",
    query: Annotated[
        list[str] | None, typer.Option("--query", "-q", help="NAME=VALUE of the address; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every item of a list, not the first page.")] = False,
) -> None:
    """Call any operation of the API and print its JSON.

    Example: hacrl api POST /hosts/drain -d '{"name": "gpu-3", "drain": "finish"}'
    """
    verb = method.upper()
    if verb not in VERBS:
        raise ClientProblem(f"{method} is not one of {', '.join(VERBS)}.")
    if verb != "GET" and (query or everything):
        raise ClientProblem("--query and --all belong to GET.")
    body, parameters = read_data(data), read_query(query or [])
    with connect() as client:
        if verb == "GET":
            values: dict[str, Any] = dict(parameters)
            if everything:
                values.pop("limit", None)  # pages are as long as the API allows
            answer = list(client.pages(path, **values)) if everything else client.get(path, **values)
        elif verb == "PUT":
            if not isinstance(body, dict):
                raise ClientProblem("PUT needs --data: a JSON object with the fields that change.")
            answer = client.change(path, **body)
        elif verb == "POST":
            answer = client.post(path, body)
        else:
            client.delete(path)
            answer = None
    if answer is not None:
        print_json(answer)


def read_data(text: str) -> Any:
    """The body of a request; None without one. Errors: ClientProblem, OSError."""
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    elif text == "-":
        text = sys.stdin.read()
    try:
        return json.loads(text) if text else None
    except ValueError as error:
        raise ClientProblem(f"--data is not JSON: {error}.") from None


def read_query(pairs: list[str]) -> dict[str, list[str]]:
    """Values by name; a name may be repeated. Error: ClientProblem."""
    parameters: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not (name and sign):
            raise ClientProblem(f"--query {pair!r} is not NAME=VALUE.")
        parameters.setdefault(name, []).append(value)
    return parameters
