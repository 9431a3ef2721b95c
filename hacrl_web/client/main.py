"""The `hacrl` command, a client of an installation's API. `./hacrl` passes its commands on."""

from __future__ import annotations

import io
import sys
from importlib import metadata
from typing import Annotated, Any

import typer
import typer.core

from hacrl_web.client.api import Client, check_address
from hacrl_web.client.command import AsJson, ClientProblem, client_command, connect
from hacrl_web.client.commands import (
    api,
    compare,
    evaluations,
    judges,
    launch,
    mirrors,
    objects,
    quota,
    results,
    retention,
    rewards,
    runs,
    watch,
)
from hacrl_web.client.login import StoredLogin, forget_login, save_login
from hacrl_web.client.program import HACRL
from hacrl_web.client.show import complain, line, print_json

EPILOG = (
    "Exit status: 0 done; 1 refused, for the reason on stderr; 2 incorrect usage; 3 not logged in or not allowed; "
    "4 not found; 5 no answer or busy; 6 the run has failed or was stopped; 130 interrupted."
)
TOKENS_PAGE = "/account/tokens"
LOCAL = ("http://localhost", "http://127.0.0.1", "http://[::1]")
# Commands of older versions, with the operation that replaces each.
FORMER = {
    "note": 'PUT /runs/ID/labels -d \'{"notes": "..."}\'',
    "unarchive": "POST /runs/ID/unarchive",
    "queue-draft": "POST /runs/ID/queue-draft",
    "sweeps pause": "POST /sweeps/N/pause",
    "sweeps resume": "POST /sweeps/N/resume",
    "sweeps retry": "POST /sweeps/N/retry",
    "sweeps seeds": "POST /sweeps/N/seeds -d '{\"seeds\": [1, 2]}'",
    "sweeps rename": 'POST /sweeps/N/rename -d \'{"name": "..."}\'',
    "models check": "POST /models/N/check",
    "models remove": "DELETE /models/N",
    "groups remove": "DELETE /groups/N",
    "projects show": "GET /projects/N",
    "projects add": 'POST /projects -d \'{"name": "..."}\'',
    "projects invite": 'POST /projects/N/invitations -d \'{"role": "member"}\'',
    "projects withdraw": "DELETE /projects/N/invitations/ID",
    "projects role": 'POST /projects/N/members/ID -d \'{"role": "viewer"}\'',
    "projects remove": "DELETE /projects/N/members/ID",
    "projects": "GET /projects",
    "hosts drain": 'POST /hosts/drain -d \'{"name": "...", "drain": "finish"}\'',
    "hosts resume": 'POST /hosts/drain -d \'{"name": "...", "drain": "no"}\'',
    "hosts": "GET /hosts",
    "tokens revoke": "POST /tokens/N/revoke",
    "tokens": "GET /tokens",
}


class Commands(typer.core.TyperGroup):
    """Answers a command of an older version with the operation that replaces it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if words := next((words for words in (" ".join(args[:2]), args[0]) if words in FORMER), None):
            complain(f"hacrl: {words} is now: {HACRL} api {FORMER[words]}")
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    help="Launch, watch and compare runs of a HACRL Web installation.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool) -> None:
    if not is_requested:
        return
    try:
        line(f"hacrl {metadata.version('hacrl-web')}")
    except metadata.PackageNotFoundError:
        line("hacrl, in a copy of the repository that is not installed")
    raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
@client_command
def login(
    url: Annotated[str, typer.Argument(help="Address of the installation, such as https://hacrl.example.org.")],
    from_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from standard input.")] = False,
) -> None:
    """Store an address and an API token for the other commands. Create the token on the page API tokens.

    Example: hacrl login https://hacrl.example.org
    """
    check_address(url)  # before the prompt
    if not from_stdin:
        complain(f"Create a token at {url.rstrip('/')}{TOKENS_PAGE}, and paste it here; it is not shown.")
    try:
        token = sys.stdin.readline() if from_stdin else typer.prompt("Token", hide_input=True)
    except UnicodeDecodeError:
        raise ClientProblem("The token on standard input is not text.") from None
    new_login = StoredLogin(url.rstrip("/"), token.strip())
    with Client(new_login.url, new_login.token) as client:
        me = client.get("/me")
    path = save_login(new_login)
    line(f"Logged in as {me['name']} at {new_login.url} ({path}).")
    if new_login.url.startswith("http://") and not new_login.url.startswith(LOCAL):
        line("This address is not encrypted: anybody on the network path can read the token.")


@app.command()
@client_command
def logout() -> None:
    """Forget the address and the token. The token stays usable until it is revoked: hacrl api POST /tokens/ID/revoke.

    Example: hacrl logout
    """
    line("Logged out." if forget_login() else "You were not logged in.")


@app.command()
@client_command
def whoami(json: AsJson = False) -> None:
    """The user of the token, and its scopes.

    Example: hacrl whoami
    """
    with connect() as client:
        me = client.get("/me")
    token = me["token"] or {"name": None, "scopes": []}
    print_json(me) if json else line(
        f"{me['name']} at {client.url}, token {token['name']}: {', '.join(token['scopes'])}"
    )


for act in (
    *(runs.runs, launch.launch, launch.presets, runs.stop, runs.pause, runs.resume, runs.retry, runs.queue),
    *(watch.watch, watch.logs, runs.show, runs.tag, runs.archive, runs.delete),
    *(results.checkpoints, results.promote, results.extend, results.alerts),
    *(evaluations.evaluate, evaluations.evaluate_harness, evaluations.scores),
    *(compare.compare, compare.leaderboard, compare.export),
):
    app.command()(act)
app.command("import")(compare.import_run)
app.add_typer(objects.sweeps, name="sweeps")
app.add_typer(objects.models, name="models")
app.add_typer(objects.groups, name="groups")
app.add_typer(objects.benchmarks, name="benchmarks")
app.add_typer(rewards.rewards, name="rewards")
app.add_typer(judges.judges, name="judges")
app.add_typer(mirrors.mirrors, name="mirrors")
app.command("quota")(quota.quota)
app.command("retention")(retention.retention)
app.command("api")(api.call_api)


def main() -> None:
    # Where the terminal has no UTF-8, a sparkline becomes question marks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    app(prog_name="hacrl")
