"""The command for the quota of a project."""

from __future__ import annotations

from typing import Annotated

import typer

from hacrl_web.client.command import AsJson, ClientProblem, ProjectName, client_command, connect, project_id
from hacrl_web.client.program import HACRL
from hacrl_web.client.show import print_rows

NO_LIMIT = "none"


def _limit(name: str, text: str) -> float | None:
    """Error: ClientProblem."""
    try:
        return None if text == NO_LIMIT else float(text) if name in ("gpu_hours", "disk_gib") else int(text)
    except ValueError:
        raise ClientProblem(f"--set {name}={text}: give a number, or {NO_LIMIT}.") from None


@client_command
def quota(
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="A limit, as staff: running=4, or running=none for no limit.")
    ] = None,
    project: ProjectName = "",
    json: AsJson = False,
) -> None:
    """Show what a project uses and may use; --set changes limits.

    Example: hacrl quota --project nlp --set running=4 --set gpu_hours=500
    """
    with connect() as client:
        path = f"/projects/{project_id(client, project)}/quota"
        answer = client.get(path)
        if changes:
            limits = dict(answer["limits"])
            for name, mark, text in (one.partition("=") for one in changes):
                if not mark or name not in limits:
                    raise ClientProblem(
                        f"--set {name}: write one of {', '.join(limits)}, = and a number or {NO_LIMIT}."
                    )
                limits[name] = _limit(name, text)
            answer = client.request("PUT", path, json=limits).json()
    print_rows(
        [{"what": name, "used": used, "limit": answer["limits"][name]} for name, used in answer["use"].items()],
        json,
        ["what", "used", "limit"],
        lambda row: [row["what"], f"{row['used']:g}", NO_LIMIT if row["limit"] is None else f"{row['limit']:g}"],
        empty=f"No quota: {HACRL} quota --set running=4.",
    )
