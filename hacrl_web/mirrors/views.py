"""The pages of mirrors: of a project, and of a run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import project_for, role_in
from hacrl_web.mirrors.kinds import KINDS
from hacrl_web.mirrors.mirrors import (
    BOUNDS,
    change_mirror,
    choose,
    create_mirror,
    delete_mirror,
    mirror_of,
    run_mirror_states,
)
from hacrl_web.mirrors.models import Choice, Mirror, Sends
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.runs.run.header import header
from hacrl_web.web.errors import FieldErrors


@sensitive_post_parameters("secret")
@require_http_methods(["GET", "HEAD", "POST"])
def project_mirrors(request: HttpRequest, project_id: int) -> HttpResponse:
    """The mirrors of a project; a POST of an admin adds one: `kind`, `name`, `secret`, `sends`, `KIND.OPTION`,
    `rollouts` and `rollout_interval`."""
    project = project_for(request, project_id, Role.ADMIN if request.method == "POST" else Role.VIEWER)
    context: dict[str, Any] = {
        "project": project,
        "mirrors": Mirror.objects.filter(project=project),
        "kinds": list(KINDS.values()),
        "sends": Sends.choices,
        "max_rollouts": BOUNDS["rollouts"][1],
        "max_interval": BOUNDS["rollout_interval"][1],
        "is_managed": role_in(request.user, project) == Role.ADMIN,
    }
    status = 200
    if request.method == "POST":
        try:
            mirror = create_mirror(request.user, project, _fields(request))
        except FieldErrors as refused:
            status = refused.status
            context |= {"errors": refused.errors, "typed": request.POST}
        else:
            messages.success(request, f"The mirror {mirror.name} is added.")
            return redirect("mirrors:project_mirrors", project.pk)
    return render(request, "mirrors/project_mirrors.html", context, status=status)


def _fields(request: HttpRequest) -> dict[str, Any]:
    """The fields of the form, with the options of its kind."""
    fields: dict[str, Any] = request.POST.dict()
    start = f"{fields.get('kind')}."
    options = {name.removeprefix(start): value.strip() for name, value in fields.items() if name.startswith(start)}
    return fields | {"options": {name: value for name, value in options.items() if value}}


@sensitive_post_parameters("secret")
@require_POST
def mirror_change(request: HttpRequest, project_id: int, mirror_id: int) -> HttpResponse:
    """`do`: pause, resume, secret, rollouts or remove."""
    mirror, act = mirror_of(request, project_id, mirror_id), request.POST.get("do", "")
    names = {"secret": ("secret",), "rollouts": tuple(BOUNDS)}.get(act, ())
    fields: dict[str, Any] = {name: request.POST.get(name, "") for name in names}
    if act in ("pause", "resume"):
        fields["is_enabled"] = act == "resume"
    try:
        if act == "remove":
            delete_mirror(request.user, mirror)
            messages.success(request, f"The mirror {mirror.name} is removed. What it sent stays there.")
        elif fields:
            change_mirror(request.user, mirror, fields)
            messages.success(request, f"The mirror {mirror.name} is changed.")
    except FieldErrors as refused:
        messages.error(request, refused.text)
    return redirect("mirrors:project_mirrors", project_id)


@require_GET
def run_mirrors(request: HttpRequest, run_id: UUID) -> HttpResponse:
    run = visible_run(request, run_id)
    context = header(run) | {"tab": "mirrors", "mirrors": run_mirror_states(run), "choices": Choice.choices}
    return render(request, "mirrors/run_mirrors.html", context)


@require_POST
def run_mirror_choose(request: HttpRequest, run_id: UUID, mirror_id: int) -> HttpResponse:
    """`choice`: default, on or off."""
    run = visible_run(request, run_id)
    try:
        choose(request.user, run, mirror_id, request.POST.get("choice"))
    except FieldErrors as refused:
        if refused.status == 403:
            raise
        messages.error(request, refused.text)
    return redirect("mirrors:run_mirrors", run.pk)
