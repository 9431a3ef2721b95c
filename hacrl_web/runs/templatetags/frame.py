"""Template tags of the frame of a page: its rail of links, the count of running runs, and the banner of the demo."""

from __future__ import annotations

from typing import Any

from django import template
from django.conf import settings
from django.db import DatabaseError
from django.urls import NoReverseMatch, reverse

from hacrl_web.runs.demo_state import Preparation, preparation
from hacrl_web.runs.models import HELD, Run

register = template.Library()

# Label, URL name, icon of the pages in the left rail.
RAIL = (
    ("Home", "home", "home"),
    ("Models", "registry:model_list", "models"),
    ("Agent groups", "registry:group_list", "groups"),
    ("Benchmarks", "registry:benchmark_list", "benchmarks"),
    ("Runs", "runs:run_list", "runs"),
    ("Sweeps", "runs:sweep_list", "sweeps"),
    ("Compare", "insight:compare", "compare"),
    ("Alerts", "alerts:alert_list", "warning"),
    ("Leaderboard", "leaderboard:index", "leaderboard"),
    ("Workers", "runs:worker_list", "workers"),
    ("Docs", "docs:index", "docs"),
)


@register.simple_tag(takes_context=True)
def rail_pages(context: template.Context) -> list[dict[str, Any]]:
    """The pages of the rail; the longest address that begins this one is the current page."""
    request = context.get("request")
    path = request.path if request is not None else ""
    pages: list[dict[str, Any]] = []
    for label, name, icon in RAIL:
        try:
            url = reverse(name)
        except NoReverseMatch:
            continue
        is_current = path == url if url == "/" else path.startswith(url)
        pages.append({"label": label, "url": url, "icon": icon, "is_current": is_current})
    return pages


@register.simple_tag(takes_context=True)
def running_count(context: template.Context) -> int:
    """How many of the listed runs a worker holds, starting or running: what the list behind the number shows."""
    try:
        return Run.objects.listed_for(context["user"]).filter(state__in=HELD).count()
    except DatabaseError:  # the frame of the page that says "database busy" must not need the database
        return 0


@register.simple_tag(takes_context=True)
def has_components(context: template.Context) -> bool:
    """Whether the menu names the page of components: for people who develop the pages, not for users."""
    return settings.DEBUG and context["user"].is_staff


@register.simple_tag(takes_context=True)
def demo_preparation(context: template.Context) -> Preparation | None:
    """What `./hacrl demo` prepares now; for staff only."""
    user = context.get("user")
    return preparation() if user is not None and user.is_staff else None
