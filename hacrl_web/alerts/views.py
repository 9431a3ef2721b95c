"""Pages of alerts: the list, the table of rules, and whom to tell. Views parse, call and render."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.models import User
from hacrl_web.alerts.forms import NotificationForm
from hacrl_web.alerts.models import Alert, Delivery, NotificationSettings
from hacrl_web.alerts.notify import queue_test
from hacrl_web.alerts.rules import BY_KIND, RULES

PAGE_SIZE = 50
DELIVERIES_SHOWN = 50


@require_GET
def alert_list(request: HttpRequest) -> HttpResponse:
    """Alerts of all runs of the project, newest first, of a state and a kind, or all. Odd values show everything."""
    visible = Alert.objects.listed_for(request.user)
    kind = request.GET.get("kind", "")
    kind = kind if kind in BY_KIND else ""
    state = request.GET.get("state", "")
    state = state if state in ("open", "cleared") else ""
    of_kind = visible.filter(kind=kind) if kind else visible
    of_state = visible.filter(cleared_at__isnull=state == "open") if state else visible
    alerts = (of_state.filter(kind=kind) if kind else of_state).select_related("run").defer("run__spec")
    # Each number is of what its link shows, which keeps the other filter.
    counts = dict(of_state.order_by().values_list("kind").annotate(Count("pk")))
    of_states = {"": of_kind.count(), "open": of_kind.filter(cleared_at=None).count()}
    of_states["cleared"] = of_states[""] - of_states["open"]
    context = {
        "page": Paginator(alerts, PAGE_SIZE).get_page(request.GET.get("page")),
        "query": urlencode({key: value for key, value in (("state", state), ("kind", kind)) if value}),
        "kinds": [
            {"rule": rule, "count": counts.get(rule.kind, 0)}
            for rule in RULES
            if counts.get(rule.kind) or rule.kind == kind
        ],
        "states": [(value, value or "all", number) for value, number in of_states.items()],
        "state": state,
        "kind": kind,
        "total": visible.count(),
        "num_open": visible.filter(cleared_at=None).count(),
    }
    return render(request, "alerts/alert_list.html", context)


@require_GET
def rule_list(request: HttpRequest) -> HttpResponse:
    """What is looked at, with every limit and where it comes from."""
    return render(request, "alerts/rule_list.html", {"rules": RULES})


@require_http_methods(["GET", "HEAD", "POST"])
def notifications(request: HttpRequest) -> HttpResponse:
    """What the user wants to be told, where, and what became of it."""
    user = cast(User, request.user)
    wishes = NotificationSettings.objects.filter(user=user).first() or NotificationSettings(user=user, email=user.email)
    form = NotificationForm(request.POST if request.method == "POST" else None, instance=wishes)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, "Saved.")
        return redirect("alerts:notifications")
    context = {
        "form": form,
        "has_mail": settings.HAS_MAIL,
        "allowed": settings.WEBHOOK_ALLOW,
        "deliveries": Delivery.objects.visible_to(user)[:DELIVERIES_SHOWN],
        "channels": NotificationSettings.objects.get(pk=user.pk).channels
        if wishes.pk and not wishes._state.adding
        else [],
    }
    return render(request, "alerts/notifications.html", context, status=422 if form.errors else 200)


@require_POST
def send_test(request: HttpRequest) -> HttpResponse:
    """Queue one message to each address of the user's; the page then shows what became of it."""
    count = queue_test(cast(User, request.user))
    if count:
        messages.info(request, "A test is on its way; reload this page to see what became of it.")
    else:
        messages.error(request, "Turn on e-mail or a webhook and save first; at most one test in ten seconds.")
    return redirect("alerts:notifications")
