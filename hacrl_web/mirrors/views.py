"""The pages of mirrors: of a project, and of a run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.models import Project, Role
from hacrl_web.accounts.projects import project_for, role_in
from hacrl_web.mirrors.kinds import KINDS
from hacrl_web.mirrors.mirrors import (
    change_mirror,
    choose,
    create_mirror,
    delete_mirror,
    mirror_states,
    run_mirror_states,
)
from hacrl_web.mirrors.models import Choice, Mirror, Sends
from hacrl_web.mirrors.requests import mirror_of
from hacrl_web.mirrors.rollout_rows import MAX_INTERVAL, MAX_ROLLOUTS
from hacrl_web.runs.pages.run_header import header
from hacrl_web.runs.requests import visible_run
from hacrl_web.web.errors import FieldErrors


@never_cache
@sensitive_post_parameters("secret")
@require_http_methods(["GET", "HEAD", "POST"])
def project_mirrors(request: HttpRequest, project_id: int) -> HttpResponse:
    """The mirrors of a project; a POST of an admin adds one: `kind`, `name`, `secret`, `sends`, `KIND.OPTION`,
    `rollouts` and `rollout_interval`."""
    needed = Role.ADMIN if request.method == "POST" else Role.VIEWER
    project = project_for(request, project_id, needed)
    if request.method != "POST":
        return _page(request, project)
    try:
        mirror = create_mirror(request.user, project, _fields(request))
    except FieldErrors as refused:
        return _page(request, project, refused.status, errors=refused.errors, typed=request.POST)
    messages.success(request, f"The mirror {mirror.name} is added.")
    return redirect(reverse("mirrors:project_mirrors", args=[project.pk]))


def _fields(request: HttpRequest) -> dict[str, Any]:
    kind = request.POST.get("kind", "")
    names = [option.name for option in KINDS[kind].options] if kind in KINDS else []
    options = {name: value for name in names if (value := request.POST.get(f"{kind}.{name}", "").strip())}
    columns = ("kind", "name", "secret", "sends", "rollouts", "rollout_interval")
    return {name: request.POST.get(name, "") for name in columns} | {"options": options}


def _page(request: HttpRequest, project: Project, status: int = 200, **more: Any) -> HttpResponse:
    context = {
        "project": project,
        "mirrors": mirror_states(project),
        "kinds": list(KINDS.values()),
        "sends": Sends.choices,
        "max_rollouts": MAX_ROLLOUTS,
        "max_interval": MAX_INTERVAL,
        "is_managed": role_in(request.user, project) == Role.ADMIN,
    }
    return render(request, "mirrors/project_mirrors.html", context | more, status=status)


@sensitive_post_parameters("secret")
@require_POST
def mirror_change(request: HttpRequest, project_id: int, mirror_id: int) -> HttpResponse:
    """`do`: pause, resume, secret, rollouts or remove."""
    mirror = mirror_of(request, project_id, mirror_id)
    act = request.POST.get("do", "")
    try:
        if act == "remove":
            delete_mirror(request.user, mirror)
            messages.success(request, f"The mirror {mirror.name} is removed. What it sent stays there.")
        elif act in ("pause", "resume"):
            change_mirror(request.user, mirror, {"is_enabled": act == "resume"})
        elif act == "secret":
            change_mirror(request.user, mirror, {"secret": request.POST.get("secret", "")})
            messages.success(request, f"The key of {mirror.name} is replaced.")
        elif act == "rollouts":
            names = ("rollouts", "rollout_interval")
            change_mirror(request.user, mirror, {name: request.POST.get(name, "") for name in names})
    except FieldErrors as refused:
        if refused.status == 403:
            raise
        messages.error(request, refused.text)
    return redirect(reverse("mirrors:project_mirrors", args=[project_id]))


@require_GET
def run_mirrors(request: HttpRequest, run_id: UUID) -> HttpResponse:
    run = visible_run(request, run_id)
    context = header(run) | {"tab": "mirrors", "mirrors": run_mirror_states(run), "choices": Choice.choices}
    return render(request, "mirrors/run_mirrors.html", context)


@require_POST
def run_mirror_choose(request: HttpRequest, run_id: UUID, mirror_id: int) -> HttpResponse:
    """`choice`: default, on or off."""
    run = visible_run(request, run_id)
    mirror = get_object_or_404(Mirror.objects.filter(project=run.project_id), pk=mirror_id)
    try:
        choose(request.user, run, mirror, request.POST.get("choice"))
    except FieldErrors as refused:
        if refused.status == 403:
            raise
        messages.error(request, refused.text)
    return redirect(reverse("mirrors:run_mirrors", args=[run.pk]))
