"""Shared by all commands: the connection, exit statuses, and how users name runs and objects."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any
from uuid import UUID

import typer

from hacrl_web.client.api import ApiError, Client, Unreachable
from hacrl_web.client.login import NotLoggedIn, find_login
from hacrl_web.client.show import complain, line, print_json

# Exit statuses; 2 is the parser's, for a wrong command line.
REFUSED, NOT_ALLOWED, NOT_FOUND, NO_ANSWER, RUN_FAILED = 1, 3, 4, 5, 6
INTERRUPTED = 130
NEWEST = 200
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON instead of a table.")]
Command = Callable[..., Any]
COMPLETION_S = 3.0


def connect(**options: Any) -> Client:
    """options: of Client. Errors: NotLoggedIn, Unreachable."""
    login = find_login()
    return Client(login.url, login.token, **options)


def completer(path: str) -> Callable[[str], list[str]]:
    """Completion for a shell: ids (their first 8 characters) and plain names of the objects at a path.

    zsh evaluates completions, so names that are not one plain word, and help texts, are left out.
    """

    def complete(incomplete: str) -> list[str]:
        try:
            with connect(timeout_s=COMPLETION_S) as client:
                rows = client.get(path, limit=NEWEST)["items"]
            names = [*(str(row["id"])[:8] for row in rows), *(row["name"] for row in rows)]
            return [name for name in names if PLAIN.fullmatch(name) and name.startswith(incomplete)]
        except Exception:
            return []  # a message would break the command line

    return complete


complete_run = completer("/runs")
RUN_HELP = "By id, its first characters, or name."
RunName = Annotated[str, typer.Argument(help=RUN_HELP, autocompletion=complete_run)]
RunNames = Annotated[list[str], typer.Argument(help=RUN_HELP, autocompletion=complete_run)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def exit_status(error: Exception) -> int:
    if isinstance(error, NotLoggedIn):
        return NOT_ALLOWED
    if isinstance(error, ApiError):
        by_status = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND, 429: NO_ANSWER}
        return by_status.get(error.status, NO_ANSWER if error.status >= 500 else REFUSED)
    return NO_ANSWER if isinstance(error, Unreachable) else REFUSED


def client_command(act: Command) -> Command:
    """A command whose errors become a line on stderr and an exit status."""

    @wraps(act)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            act(*args, **kwargs)
        except (ApiError, NotLoggedIn, Unreachable, ClientProblem, OSError) as error:
            complain(f"hacrl: {error}")
            raise typer.Exit(exit_status(error)) from None
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            complain(f"hacrl: Unexpected answer. Does the installation have another version? ({repr(error)[:200]})")
            raise typer.Exit(NO_ANSWER) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return guarded


class ClientProblem(Exception):
    """An error that the user can correct; the text says how."""


def run_id(client: Client, name: str) -> str:
    """The id of a run, by its id, the first characters of it, or its name. Errors: ApiError, ClientProblem."""
    try:
        return str(UUID(name))
    except ValueError:
        return str(_match(_newest(client), name)["id"])


def find_runs(client: Client, names: Sequence[str]) -> list[dict[str, Any]]:
    """The runs of these names, each once, in their order. Errors: ApiError, ClientProblem."""
    newest: list[dict[str, Any]] | None = None
    by_id = {}
    for name in names:
        try:
            run = client.get(f"/runs/{UUID(name)}")
        except ValueError:
            newest = newest if newest is not None else _newest(client)
            run = _match(newest, name)
        by_id[run["id"]] = run
    return list(by_id.values())


def for_each(runs: list[dict[str, Any]], act: Callable[[dict[str, Any]], Any], json: bool, done: str) -> None:
    """Call `act` for each run, also after a refusal.

    act: returns the value for --json.  done: start of the line about each run. Errors: Unreachable; typer.Exit at the
    end, with the status of the last refusal.
    """
    status = 0
    results = []
    for run in runs:
        try:
            results.append(act(run))
        except ApiError as error:
            complain(f"hacrl: {run['name']} ({run['id'][:8]}): {error}")
            status = exit_status(error)
            continue
        if not json:
            line(f"{done}: {run['name']} ({run['id'][:8]})")
    if json:
        print_json(results)
    if status:
        raise typer.Exit(status)


def agree(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless --yes. Error: ClientProblem where the answer is no, or without a terminal."""
    if yes:
        return
    if not can_ask():
        raise ClientProblem("Nothing was done, because there is no terminal to ask: --yes does it without asking.")
    if not typer.confirm(question, err=True):
        raise ClientProblem("Nothing was done.")


def can_ask() -> bool:
    return sys.stdin.isatty()


def _newest(client: Client) -> list[dict[str, Any]]:
    return list(client.pages("/runs", most=NEWEST))


def _match(runs: list[dict[str, Any]], name: str) -> dict[str, Any]:
    matches = [run for run in runs if run["name"] == name] or [run for run in runs if run["id"].startswith(name)]
    only_id = _only([run["id"] for run in matches], "run", name)
    return next(run for run in matches if run["id"] == only_id)


def object_id(client: Client, path: str, kind: str, name: str) -> int:
    """The id of a model, a group, a sweep ... by its id or its name. Errors: ApiError, ClientProblem."""
    if name.isascii() and name.isdigit():
        return int(name)
    return int(_only([row["id"] for row in client.pages(path, page_size=None) if row["name"] == name], kind, name))


def _only(ids: list[Any], kind: str, name: str) -> Any:
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise ApiError(404, [{"code": "not_found", "message": f"There is no {kind} {name!r}.", "field": None}])
    raise ClientProblem(f"{name!r} matches {len(ids)} {kind}s: give the id of one. {', '.join(map(str, ids[:5]))}")
