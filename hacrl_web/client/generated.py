"""Makes the commands of `verbs.py`: each calls one operation of the API.

Types, required fields and help come from `operations.json`, a part of the OpenAPI document. It is stored because this
package is installed alone, and a command shows its help without a connection: `python -m tools.client_operations`.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from contextlib import ExitStack
from functools import reduce
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from hacrl_web.client.api import Client
from hacrl_web.client.command import (
    AsJson,
    Command,
    RunName,
    client_command,
    completer,
    connect,
    object_id,
    run_id,
)
from hacrl_web.client.show import HACRL, counted, format_number, line, moment, print_json, print_rows, state, table
from hacrl_web.client.verbs import VALUES, VERBS, Verb

OPERATIONS: dict[str, Any] = json_module.loads(Path(__file__).with_name("operations.json").read_text(encoding="utf-8"))
TYPES: dict[str, Any] = {"integer": int, "number": float, "boolean": bool, "array": list[str]}


def make_command(name: str, verb: Verb, *, is_group: bool = False) -> Command:
    """Make the command of a verb. is_group: it acts where no command below it is named."""
    operation = OPERATIONS[verb.operation]

    def act(**typed: Any) -> None:
        if is_group and typed["context"].invoked_subcommand:
            return None
        with connect() as client:
            path = _with_ids(client, verb.path, typed)
            if verb.columns:
                rows = client.pages(path, most=typed.get("limit"), page_size=operation["page"])
                return _print_list(name, verb, list(rows), typed["json"])
            answer = _send(client, verb, path, _request(client, verb, typed))
        if typed["json"]:
            print_json(answer)
        elif verb.fields:
            table(["", " "], _pairs(client, verb, answer), empty="", folded=frozenset({" "}))
        else:
            line(_summary(client, verb, answer, typed))
        return None

    parameters = _of_path(verb.path)
    for names, is_argument in ((verb.arguments, True), (verb.options, False)):
        parameters |= {name.split(">")[0]: _parameter(name, operation["fields"], is_argument) for name in names.split()}
    if verb.limit:
        parameters["limit"] = Annotated[int, typer.Option(min=1, help="How many of the newest.")], verb.limit
    parameters |= {"json": (AsJson, False)} | ({"context": (typer.Context, Parameter.empty)} if is_group else {})
    changing = "; one of this name is changed" if verb.by_name else ""
    act.__doc__ = None if is_group else f"{operation['summary']}{changing}.\n\nExample: hacrl {verb.example}"
    declared = [
        Parameter(option, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for option, (annotation, default) in parameters.items()
    ]
    act.__signature__ = Signature(declared)  # type: ignore[attr-defined]
    return client_command(act)


# Parameters of the command line: their annotations and defaults


def _parameter(token: str, fields: Mapping[str, Any], is_argument: bool) -> tuple[Any, Any]:
    """The parameter of a command for an argument or option of the table; arguments are required."""
    option, _, other = token.partition(">")
    field = fields.get(other or option, {})
    kind, help_text, _ = VALUES.get(token, (TYPES.get(field.get("type"), str), field.get("help"), None))
    if is_argument:
        return Annotated[kind, typer.Argument(help=help_text)], Parameter.empty
    declared = typer.Option(f"--{option.replace('_', '-')}", help=help_text)
    if kind is bool:
        return Annotated[bool, declared], False
    return Annotated[kind | None, declared], None


def _of_path(path: str) -> dict[str, Any]:
    """The parameters of a command for the identifiers of a path, by name."""
    annotations: dict[str, Any] = {}
    for collection, identifier in _identifiers(path):
        if identifier == "run_id":
            annotations["run"] = RunName, Parameter.empty
        else:
            complete = None if "{" in collection else completer(collection)
            argument = typer.Argument(
                help=f"A {_kind(collection).replace('_', ' ')}, by id or name.", autocompletion=complete
            )
            annotations[_kind(collection)] = Annotated[str, argument], Parameter.empty
    return annotations


def _identifiers(path: str) -> list[tuple[str, str]]:
    """/groups/{pk}/copy -> [("/groups", "pk")]"""
    parts = path.split("/")
    return [("/".join(parts[:place]), part[1:-1]) for place, part in enumerate(parts) if part.startswith("{")]


def _kind(collection: str) -> str:
    return collection.rpartition("/")[2].removesuffix("s").replace("-", "_")


# The request


def _with_ids(client: Client, path: str, typed: Mapping[str, Any]) -> str:
    """The path with the ids of the named objects. Errors: ApiError, ClientProblem."""
    address = ""
    for part in path.split("/")[1:]:
        if part == "{run_id}":
            part = run_id(client, typed["run"])
        elif part.startswith("{"):
            kind = _kind(address)
            part = str(object_id(client, address, kind.replace("_", " "), typed[kind]))
        address += f"/{part}"
    return address


def _request(client: Client, verb: Verb, typed: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request; what was not typed is left out. Errors: ApiError, ClientProblem, OSError.

    An object that is made of a file has its name, unless another one is given.
    """
    body: dict[str, Any] = {}
    for token in f"{verb.arguments} {verb.options}".split():
        option, _, other = token.partition(">")
        if typed[option] is None or typed[option] is False or typed[option] == []:  # 0 is a value
            continue
        value = VALUES[token][2](client, typed[option]) if token in VALUES else typed[option]
        body |= value if token.endswith(">") else {other or option: value}
    if "file" in typed:
        body.setdefault("name", typed["file"].stem)
    return body


def _send(client: Client, verb: Verb, path: str, body: dict[str, Any]) -> Any:
    """The answer; None without one. Errors: ApiError, Unreachable, OSError."""
    operation = OPERATIONS[verb.operation]
    if operation["is_form"]:
        with ExitStack() as stack:
            paths = {name: value for name, value in body.items() if isinstance(value, Path)}
            files = {name: (path.name, stack.enter_context(path.open("rb"))) for name, path in paths.items()}
            return client.upload(path, {name: str(body[name]) for name in body.keys() - paths}, files)
    method = verb.operation.split(" ")[0]
    if verb.by_name:
        row = next((one for one in client.pages(path) if one["name"] == body["name"]), None)
        if row is not None:
            method, path = "PUT", f"{path}/{row['id']}"
            del body["name"]
    # With a key the request may be sent again after a lost answer.
    headers = {"Idempotency-Key": uuid4().hex} if verb.is_once else {}
    response = client.request(method, path, json=body or None, headers=headers)
    return client.json_of(response) if response.content else None


# The output


def _print_list(name: str, verb: Verb, rows: list[Any], json: bool) -> None:
    adding = f": {HACRL} {name} add --help" if f"{name} add" in VERBS else ""
    print_rows(
        rows,
        json,
        [head.replace("_", " ") for head, _ in _columns(verb.columns)],
        lambda row: [_cell(key, row) for _, key in _columns(verb.columns)],
        empty=f"No {_kind(verb.path).replace('_', ' ')} yet{adding}.",
    )


def _pairs(client: Client, verb: Verb, answer: Any) -> list[tuple[str, Any]]:
    """Names and values of an object, without the empty ones."""
    values = [(head, _cell(key, answer)) for head, key in _columns(verb.fields)]
    return [
        (head, f"{client.url}{value}" if head == "page" else value) for head, value in values if value not in (None, "")
    ]


def _columns(text: str) -> list[tuple[str, str]]:
    """The heads of a table, with the names of their values, dotted in nested objects."""
    return [(column.split("=")[0], column.split("=")[-1]) for column in text.split()]


def _cell(key: str, row: Any) -> Any:
    value = reduce(lambda inner, name: inner[name], key.split("."), row)
    if key == "state":
        return state(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(one["name"] if isinstance(one, dict) else str(one) for one in value)
    if key.endswith("_at"):
        return moment(value)
    return format_number(value) if key.startswith("num_") else value


def _summary(client: Client, verb: Verb, answer: Any, typed: Mapping[str, Any]) -> str:
    """One line about an answer, by what it has."""
    answer = answer or {}
    if "reward" in answer:
        reward = "unscorable" if answer["reward"] is None else f"{answer['reward']:g}"
        return f"{reward}: {answer['reason']}"
    if "changed" in answer:
        return f"{answer['name']}: {verb.path.rpartition('/')[2]}, {counted(len(answer['changed']), 'run')}"
    if "desired_state" in answer:
        where = f", {client.url}{answer['url']}" if verb.path.count("/") == 1 else ""
        return f"{answer['name']} ({answer['id']}): {answer['state']}, desired: {answer['desired_state']}{where}"
    kind = _kind(next(part for part in reversed(verb.path.split("/")) if part.endswith("s")))
    if "id" not in answer:
        return f"Done: {' '.join(typed[name] for name in (*_of_path(verb.path), *verb.arguments.split()))}"
    version = f", version {answer['version']}" if "version" in answer else ""
    made = f"{kind.replace('_', ' ').capitalize()} {answer['id']}: {answer['name']}{version}"
    return "\n".join([made, *import_lines(answer.get("facts") or {})])


def import_lines(facts: Mapping[str, Any]) -> list[str]:
    """How a benchmark's file was read: its columns, notes, what its tests reward, and the rows that are left out."""
    if "mapping" not in facts:
        return []
    columns = [f"{part} {name}" for part, name in facts["mapping"].items() if name and name != "as_is"]
    left_out = facts.get("left_out") or {"num": 0, "rows": []}
    rows = [f"  {row['place']}: {row['reason']}" for row in left_out["rows"]]
    head = [f"Rows left out: {left_out['num']}"] if rows else []
    said = [*facts.get("notes", []), *_trial_lines(facts.get("trials") or {})]
    return [f"Columns: {', '.join(columns)}", *said, *head, *rows]


def _trial_lines(trials: Mapping[str, Any]) -> list[str]:
    """What the benchmark's page says of tests that degenerate code passes, or a response could fake."""
    if trials.get("unavailable"):
        return [f"The tests were not tried, because no code runs there: {trials['unavailable']}"]
    said = {
        "rewarded": "reward degenerate code, which a model may learn",
        "one_process": "run in the process of the response, which could fake their result",
    }
    return [
        f"The tests of {counted(trials[f'num_{name}'], 'question')} {text}: {trials[name]}"
        for name, text in said.items()
        if trials.get(f"num_{name}")
    ]
