"""Commands for who may do what: projects with their members and invitations, API tokens, hosts that take runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hacrl_web.client.api import ApiError, Client
from hacrl_web.client.command import OPTIONS, AsJson, Yes, agree, client_command, completer, connect, object_id
from hacrl_web.client.show import line, print_json, table

projects = typer.Typer(help="List projects; invite, change and remove their members.", **OPTIONS)
tokens = typer.Typer(help="List and revoke your API tokens; they are made on their page.", **OPTIONS)
hosts = typer.Typer(help="List the hosts that train; let one take no more runs.", **OPTIONS)
ProjectName = Annotated[
    str, typer.Argument(help="Id of a project, or its name.", autocompletion=completer("/projects"))
]
Member = Annotated[str, typer.Argument(help="User name of a member.")]


def add_to(app: typer.Typer) -> None:
    app.add_typer(projects, name="projects")
    app.add_typer(tokens, name="tokens")
    app.add_typer(hosts, name="hosts")


def _project(client: Client, name: str) -> dict[str, Any]:
    """Errors: ApiError, Problem."""
    project: dict[str, Any] = client.get(f"/projects/{object_id(client, '/projects', 'project', name)}")
    return project


@projects.callback()
@client_command
def list_projects(context: typer.Context, json: AsJson = False) -> None:
    """Your projects, and what you may do in each."""
    if context.invoked_subcommand:
        return None
    with connect() as client:
        projects = list(client.pages("/projects"))
    if json:
        return print_json(projects)
    rows = ([one["id"], one["name"], one["role"]] for one in projects)
    table(["id", "name", "your role"], rows, empty="You are in no project.")
    return None


@projects.command("show")
@client_command
def show_project(project: ProjectName, json: AsJson = False) -> None:
    """The members of a project. Its admins see the open invitations too.

    Example: hacrl projects show vision
    """
    with connect() as client:
        detail = _project(client, project)
    if json:
        return print_json(detail)
    line(f"{detail['name']} ({detail['id']})")
    table(["member", "role"], ([one["user"]["name"], one["role"]] for one in detail["members"]), empty="No member.")
    if detail.get("invitations"):
        rows = ([one["id"], one["role"], one["comment"], one["expires_at"]] for one in detail["invitations"])
        table(["invitation", "role", "for", "expires"], rows, empty="")
    return None


@projects.command("add")
@client_command
def add_project(name: str, json: AsJson = False) -> None:
    """Make a project (staff).

    Example: hacrl projects add vision
    """
    with connect() as client:
        answer = client.post("/projects", {"name": name})
    print_json(answer) if json else line(f"Project {answer['id']}: {answer['name']}")


@projects.command("invite")
@client_command
def invite(
    project: ProjectName,
    role: Annotated[str, typer.Option(help="viewer, member or admin.")] = "member",
    comment: Annotated[str, typer.Option("--for", help="For whom it is; shown beside the invitation.")] = "",
    json: AsJson = False,
) -> None:
    """Make a link that lets one person in, once. It is shown here and nowhere else.

    Example: hacrl projects invite vision --role viewer --for Ann
    """
    with connect() as client:
        detail = _project(client, project)
        answer = client.post(f"/projects/{detail['id']}/invitations", {"role": role, "comment": comment})
    print_json(answer) if json else line(f"{answer['link']}  ({answer['role']}, until {answer['expires_at']})")


@projects.command("withdraw")
@client_command
def withdraw(
    project: ProjectName, invitation: Annotated[int, typer.Argument(help="Its number, of projects show.")]
) -> None:
    """End an open invitation.

    Example: hacrl projects withdraw vision 4
    """
    with connect() as client:
        client.delete(f"/projects/{_project(client, project)['id']}/invitations/{invitation}")
    line("The invitation lets nobody in any more.")


def _member(client: Client, project: dict[str, Any], name: str) -> str:
    """The address of a membership. Error: ApiError."""
    for one in project["members"]:
        if one["user"]["name"] == name:
            return f"/projects/{project['id']}/members/{one['id']}"
    message = f"{name!r} is no member of {project['name']}."
    raise ApiError(404, [{"code": "not_found", "message": message, "field": None}])


@projects.command("role")
@client_command
def set_role(
    project: ProjectName, member: Member, role: Annotated[str, typer.Argument(help="viewer, member or admin.")]
) -> None:
    """Another role for a member.

    Example: hacrl projects role vision ann admin
    """
    with connect() as client:
        changed = client.post(_member(client, _project(client, project), member), {"role": role})
    line(f"{changed['user']['name']}: {changed['role']}")


@projects.command("remove")
@client_command
def remove_member(project: ProjectName, member: Member, yes: Yes = False) -> None:
    """Take a member out of a project; what they made stays.

    Example: hacrl projects remove vision ann
    """
    with connect() as client:
        detail = _project(client, project)
        path = _member(client, detail, member)
        agree(f"Take {member!r} out of {detail['name']!r}?", yes=yes)
        client.delete(path)
    line(f"{member} is no member of {detail['name']} any more.")


@tokens.callback()
@client_command
def list_tokens(context: typer.Context, json: AsJson = False) -> None:
    """Your API tokens, newest first."""
    if context.invoked_subcommand:
        return None
    with connect() as client:
        tokens = list(client.pages("/tokens"))
    if json:
        return print_json(tokens)
    rows = (
        [one["id"], one["name"], " ".join(one["scopes"]), one["state"], one["expires_at"], one["last_used_at"]]
        for one in tokens
    )
    table(["id", "name", "scopes", "state", "expires", "last used"], rows, empty="No token.")
    return None


@tokens.command("revoke")
@client_command
def revoke_token(
    token: Annotated[str, typer.Argument(help="Id of a token, or its name.", autocompletion=completer("/tokens"))],
) -> None:
    """Let a token in no more. It may be the one that this command uses.

    Example: hacrl tokens revoke nightly
    """
    with connect() as client:
        answer = client.post(f"/tokens/{object_id(client, '/tokens', 'token', token)}/revoke")
    line(f"{answer['name']}: {answer['state']}")


@hosts.callback()
@client_command
def list_hosts(context: typer.Context, json: AsJson = False) -> None:
    """The hosts that have been heard of."""
    if context.invoked_subcommand:
        return None
    with connect() as client:
        hosts = list(client.pages("/hosts"))
    if json:
        return print_json(hosts)
    words = {"no": "yes", "finish": "no new ones", "now": "none"}
    rows = (
        [one["name"], one["last_seen"], words.get(one["drain"], one["drain"]), one["drain_reason"]] for one in hosts
    )
    table(["name", "last seen", "takes runs", "why"], rows, empty="No host was heard of yet: ./hacrl up starts one.")
    return None


@hosts.command("drain")
@client_command
def drain_host(
    name: str,
    now: Annotated[bool, typer.Option("--now", help="Runs under way are saved and queued again.")] = False,
    why: Annotated[str, typer.Option(help="Shown beside it.")] = "",
) -> None:
    """Let a host take no more runs (staff).

    Example: hacrl hosts drain node-3 --why "new driver"
    """
    _drain(name, "now" if now else "finish", why)


@hosts.command("resume")
@client_command
def resume_host(name: str) -> None:
    """Let a host take runs again (staff).

    Example: hacrl hosts resume node-3
    """
    _drain(name, "no", "")


def _drain(name: str, drain: str, why: str) -> None:
    with connect() as client:
        answer = client.post("/hosts/drain", {"name": name, "drain": drain, "why": why})
    line(f"{answer['name']}: {'takes runs again' if drain == 'no' else 'takes no more runs'}")
