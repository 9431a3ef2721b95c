"""`hacrl api`: any operation of the REST API, for acts that have no command of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

import typer

from hacrl_web.client.command import ClientProblem, client_command, connect
from hacrl_web.client.show import HACRL, print_json, print_text

VERBS = ("GET", "POST", "PUT", "DELETE")
PAGING = ("limit", "cursor")  # with --all the client sets them


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
    """Call any operation of the API and print its answer: JSON, or the text of a file.

    Example: hacrl api POST /hosts/drain -d '{"name": "gpu-3", "drain": "finish"}'
    """
    verb = method.upper()
    if verb not in VERBS:
        raise ClientProblem(f"{method} is not one of {', '.join(VERBS)}.")
    if everything and verb != "GET":
        raise ClientProblem("--all belongs to GET.")
    path, _, in_path = path.partition("?")
    body, parameters = read_data(data), read_query(query or [])
    for name, value in parse_qsl(in_path, keep_blank_values=True):
        parameters.setdefault(name, []).append(value)
    if verb == "PUT" and not isinstance(body, dict):
        raise ClientProblem("PUT needs --data: a JSON object with the fields that change.")
    address = f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path
    with connect() as client:
        if everything:
            filters: dict[str, Any] = {name: values for name, values in parameters.items() if name not in PAGING}
            try:
                return print_json(list(client.pages(path, page_size=None, **filters)))
            except (LookupError, TypeError):
                raise ClientProblem(f"--all cannot follow {path}: it is no list with `items` and `next`.") from None
        if verb == "PUT":
            try:
                return print_json(client.change(address, **body))
            except (LookupError, TypeError):
                raise ClientProblem(f"{path} cannot be changed with PUT.") from None
        response = client.request(verb, address, json=body)
        if not response.content:
            return None
        kind = response.headers.get("Content-Type", "")
        if "json" in kind or "html" in kind:  # a page is of something else, such as a proxy
            return print_json(client.json_of(response))
    try:
        return print_text(response.content.decode())
    except UnicodeDecodeError:
        raise ClientProblem(f"The answer is a file, and not one of text: {HACRL} export saves it.") from None


def read_data(text: str) -> Any:
    """The body of a request; None without one. Errors: ClientProblem, OSError."""
    try:
        if text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        elif text == "-":
            text = sys.stdin.read()
        body = json.loads(text, parse_constant=_refuse_constant) if text else None
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeError:
        raise ClientProblem("--data is not UTF-8 text.") from None
    except ValueError as error:
        raise ClientProblem(f"--data is not JSON: {error}.") from None
    return body


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a finite number")


def read_query(pairs: list[str]) -> dict[str, list[str]]:
    """Values by name; a name may be repeated. Error: ClientProblem."""
    parameters: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not (name and sign):
            raise ClientProblem(f"--query {pair!r} is not NAME=VALUE.")
        parameters.setdefault(name, []).append(value)
    return parameters
