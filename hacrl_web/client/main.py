"""The `hacrl` command, a client of an installation's API. `./hacrl` passes its commands on."""

from __future__ import annotations

import io
import sys
from importlib import metadata
from typing import Annotated, Any

import typer
import typer.core

from hacrl_web.client.api import Client, check_address
from hacrl_web.client.command import ClientProblem, client_command
from hacrl_web.client.commands import api, compare, launch, results, runs, sweeps, watch
from hacrl_web.client.generated import make_command
from hacrl_web.client.login import StoredLogin, forget_login, save_login
from hacrl_web.client.show import HACRL, complain, line
from hacrl_web.client.verbs import GROUPS, VERBS

EPILOG = (
    "Exit status: 0 done; 1 refused, for the reason on stderr; 2 incorrect usage; 3 not logged in or not allowed; "
    "4 not found; 5 no answer or busy; 6 the run has failed or was stopped; 130 interrupted."
)
TOKENS_PAGE = "/account/tokens"
LOCAL = ("http://localhost", "http://127.0.0.1", "http://[::1]")


class Commands(typer.core.TyperGroup):
    """A group of commands that answers an unknown one with a hint at `--help` and `hacrl api`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not args[0].startswith("-"):
            complain(
                f"hacrl: There is no command {args[0]!r}. {HACRL} --help lists all; {HACRL} api calls any operation."
            )
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


groups = {
    name: typer.Typer(help=text, no_args_is_help=False, invoke_without_command=True) for name, text in GROUPS.items()
}
for name, verb in VERBS.items():
    group, _, last = name.rpartition(" ")
    if name in groups:
        groups[name].callback()(make_command(name, verb, is_group=True))
    else:
        (groups[group] if group else app).command(last)(make_command(name, verb))
groups["sweeps"].command("show")(sweeps.show_sweep)
for name, group_app in groups.items():
    app.add_typer(group_app, name=name)
for act in (
    *(runs.runs, runs.tag, runs.archive, runs.delete, launch.launch, watch.watch, watch.logs),
    *(results.checkpoints, results.alerts, results.scores, compare.compare, compare.export),
):
    app.command()(act)
app.command("import")(compare.import_run)
app.command("api")(api.call_api)


def main() -> None:
    # Where the terminal has no UTF-8, a sparkline becomes question marks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    app(prog_name="hacrl")
