"""What all commands share: the connection, the endings, and how a run or an object is named."""

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

# Exit statuses; 2 is the parser's, for a command line that it does not understand.
REFUSED, NOT_ALLOWED, NOT_FOUND, NO_ANSWER, RUN_FAILED = 1, 3, 4, 5, 6
INTERRUPTED = 130
NEWEST = 200
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON instead of a table.")]
Command = Callable[..., Any]
COMPLETION_S = 3.0
# Of a group of commands that lists its objects where no command is named.
OPTIONS: dict[str, Any] = {"no_args_is_help": False, "invoke_without_command": True}


def connect() -> Client:
    """Errors: NotLoggedIn, Unreachable."""
    login = find_login()
    return Client(login.url, login.token)


def completer(path: str) -> Callable[[str], list[str]]:
    """For the shell's Tab: ids, or how they begin, and the names that are one plain word, of the objects at a path.

    zsh evaluates what it is given, so no text that others may have written goes there, and no help beside it.
    """

    def complete(incomplete: str) -> list[str]:
        try:
            login = find_login()
            with Client(login.url, login.token, timeout_s=COMPLETION_S) as client:
                rows = client.get(path, limit=NEWEST)["items"]
            names = [*(str(row["id"])[:8] for row in rows), *(row["name"] for row in rows)]
            return [name for name in names if PLAIN.fullmatch(name) and name.startswith(incomplete)]
        except Exception:
            return []  # in the middle of a command line there is no place for a message

    return complete


complete_run = completer("/runs")
RunName = Annotated[
    str, typer.Argument(help="Id of a run, how its id begins, or its name.", autocompletion=complete_run)
]
RunNames = Annotated[
    list[str], typer.Argument(help="Runs, by id, how it begins, or name.", autocompletion=complete_run)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def ending(error: Exception) -> int:
    """The exit status of what went wrong."""
    if isinstance(error, NotLoggedIn):
        return NOT_ALLOWED
    if isinstance(error, ApiError):
        by_status = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND, 429: NO_ANSWER}
        return by_status.get(error.status, NO_ANSWER if error.status >= 500 else REFUSED)
    return NO_ANSWER if isinstance(error, Unreachable) else REFUSED


def client_command(act: Command) -> Command:
    """A command that gets a Client, and whose errors become a line on stderr and an exit status."""

    @wraps(act)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            act(*args, **kwargs)
        except (ApiError, NotLoggedIn, Unreachable, ClientProblem, OSError) as error:
            complain(f"hacrl: {error}")
            raise typer.Exit(ending(error)) from None
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            complain(f"hacrl: The answer is not what this command expects; is it of another version? ({error!r})")
            raise typer.Exit(NO_ANSWER) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return guarded


class ClientProblem(Exception):
    """Something in the user's hands; the text says what."""


def run_id(client: Client, name: str) -> str:
    """The id of a run by its id, the beginning of its id, or its name, among the newest. Errors: ApiError, Problem."""
    try:
        return str(UUID(name))
    except ValueError:
        return str(_meant(_newest(client), name)["id"])


def find_runs(client: Client, names: Sequence[str]) -> list[dict[str, Any]]:
    """The runs that are named, each once, in their order. Errors: ApiError, Problem, and none of them is touched."""
    newest: list[dict[str, Any]] | None = None
    by_id = {}
    for name in names:
        try:
            run = client.get(f"/runs/{UUID(name)}")
        except ValueError:
            newest = newest if newest is not None else _newest(client)
            run = _meant(newest, name)
        by_id[run["id"]] = run
    return list(by_id.values())


def for_each(runs: list[dict[str, Any]], act: Callable[[dict[str, Any]], Any], json: bool, done: str) -> None:
    """Do something to each run. One that refuses does not keep the others from it.

    act: gets the run, returns what --json prints.  done: how the line about each begins. Errors: Unreachable;
    typer.Exit, at the end, with the status of the last refusal.
    """
    status = 0
    results = []
    for run in runs:
        try:
            results.append(act(run))
        except ApiError as error:
            complain(f"hacrl: {run['name']} ({run['id'][:8]}): {error}")
            status = ending(error)
            continue
        if not json:
            line(f"{done}: {run['name']} ({run['id'][:8]})")
    if json:
        print_json(results)
    if status:
        raise typer.Exit(status)


def agree(question: str, *, yes: bool) -> None:
    """Ask, unless --yes was given. Error: Problem, where the answer is no or nobody can be asked."""
    if yes:
        return
    if not can_ask():
        raise ClientProblem("Nobody can be asked here, and nothing was done: --yes does it without asking.")
    if not typer.confirm(question, err=True):
        raise ClientProblem("Nothing was done.")


def can_ask() -> bool:
    return sys.stdin.isatty()


def _newest(client: Client) -> list[dict[str, Any]]:
    return list(client.pages("/runs", most=NEWEST))


def _meant(runs: list[dict[str, Any]], name: str) -> dict[str, Any]:
    matches = [run for run in runs if run["name"] == name] or [run for run in runs if run["id"].startswith(name)]
    only_id = _only([run["id"] for run in matches], "run", name)
    return next(run for run in matches if run["id"] == only_id)


def object_id(client: Client, path: str, kind: str, name: str) -> int:
    """The id of a model, a group, a sweep ... by its id or its name. Errors: ApiError, Problem."""
    if name.isascii() and name.isdigit():
        return int(name)
    return int(_only([row["id"] for row in client.pages(path) if row["name"] == name], kind, name))


def _only(ids: list[Any], kind: str, name: str) -> Any:
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise ApiError(404, [{"code": "not_found", "message": f"There is no {kind} {name!r}.", "field": None}])
    raise ClientProblem(f"{len(ids)} are meant by {name!r}: give the id of one. {', '.join(map(str, ids[:5]))}")


def is_interactive() -> bool:
    return sys.stdout.isatty()
