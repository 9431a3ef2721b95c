"""Template tags of a page's frame: the rail of links, the running runs, the banners of full disks and of the demo."""

from __future__ import annotations

from typing import Any

from django import template
from django.db import DatabaseError
from django.urls import NoReverseMatch, reverse

from hacrl_web.ops import disk_space
from hacrl_web.runs.models import HELD, Run
from hacrl_web.runs.workspace.demo_state import Preparation, preparation

register = template.Library()

# Groups of the left rail: label, URL name, icon of each page.
RAIL = {
    "Work": (
        ("Home", "home", "home"),
        ("Runs", "runs:run_list", "runs"),
        ("Sweeps", "runs:sweep_list", "sweeps"),
        ("Leaderboard", "leaderboard:index", "leaderboard"),
        ("Reports", "reports:report_list", "draft"),
    ),
    "Library": (
        ("Models", "registry:model_list", "models"),
        ("Agent groups", "registry:group_list", "groups"),
        ("Benchmarks", "registry:benchmark_list", "benchmarks"),
        ("Reward functions", "registry:function_list", "rewards"),
        ("Judges", "registry:judge_list", "judges"),
    ),
    "System": (
        ("Workers", "runs:worker_list", "workers"),
        ("Alerts", "alerts:alert_list", "warning"),
        ("Docs", "docs:index", "docs"),
    ),
}


@register.simple_tag(takes_context=True)
def rail_groups(context: template.Context) -> list[dict[str, Any]]:
    """The groups of the rail with their pages; a page whose address begins this one is the current page."""
    request = context.get("request")
    path = request.path if request is not None else ""
    if path == reverse("runs:run_create") and request.GET.get("compare"):
        path = reverse("runs:sweep_list")  # a new sweep
    groups = []
    for title, entries in RAIL.items():
        pages: list[dict[str, Any]] = []
        for label, name, icon in entries:
            try:
                url = reverse(name)
            except NoReverseMatch:
                continue
            is_current = path == url if url == "/" else path.startswith(url)
            pages.append({"label": label, "url": url, "icon": icon, "is_current": is_current})
        groups.append({"title": title, "pages": pages})
    return groups


@register.simple_tag(takes_context=True)
def running_count(context: template.Context) -> int:
    """How many of the listed runs a worker holds, starting or running: what the list behind the number shows."""
    try:
        return Run.objects.listed_for(context["user"]).filter(state__in=HELD).count()
    except DatabaseError:  # the frame of the page that says "database busy" must not need the database
        return 0


@register.simple_tag
def disks_without_room() -> list[disk_space.Disk]:
    """The disks of this host that are full or nearly full."""
    return disk_space.low_disks()


@register.simple_tag(takes_context=True)
def demo_preparation(context: template.Context) -> Preparation | None:
    """What `./hacrl demo` prepares now; for staff only."""
    user = context.get("user")
    return preparation() if user is not None and user.is_staff else None
