"""Pages of alerts, their rules, and notifications. Views parse, call and render."""

from __future__ import annotations

from typing import Literal, cast

from django.conf import settings
from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from hacrl_web.accounts.models import User
from hacrl_web.alerts.models import ENDED, Alert, Delivery, NotificationSettings, by_cause
from hacrl_web.alerts.notifications.forms import NotificationForm
from hacrl_web.alerts.notifications.notify import queue_test
from hacrl_web.alerts.rules.table import BY_KIND, RULES
from hacrl_web.web.page_query import PageQuery, Text, one_of, page_of

PAGE_SIZE = 50
DELIVERIES_SHOWN = 50
_ENDED = Q(cleared_reason__startswith=ENDED)
STATES = {"open": Q(cleared_at=None), "cleared": Q(cleared_at__isnull=False) & ~_ENDED, "ended": _ENDED}
STATE_WORDS = {"": "all", "ended": "ended with the run"}


class AlertsQuery(PageQuery):
    state: Literal["", "open", "cleared", "ended"] = ""
    kind: Text = ""


@require_GET
def alert_list(request: HttpRequest) -> HttpResponse:
    """Alerts of all runs of the project, newest first; of one state or kind if the address names them."""
    visible = Alert.objects.listed_for(request.user)
    query = AlertsQuery.read(request.GET)
    state, kind = query.state, one_of(query.kind, BY_KIND)
    of_kind = visible.filter(kind=kind) if kind else visible
    of_state = visible.filter(STATES[state]) if state else visible
    alerts = (of_state.filter(kind=kind) if kind else of_state).select_related("run").defer("run__spec")
    # Each link keeps the other filter, so its count does, too.
    counts = dict(of_state.order_by().values_list("kind").annotate(Count("pk")))
    of_states = {"": of_kind.count(), **{name: of_kind.filter(choice).count() for name, choice in STATES.items()}}
    page = page_of(request, alerts, PAGE_SIZE)
    context = {
        "page": page,
        "causes": by_cause(page.object_list),
        "query": query.encode(kind=kind),
        "kinds": [
            {"rule": rule, "count": counts.get(rule.kind, 0)}
            for rule in RULES
            if counts.get(rule.kind) or rule.kind == kind
        ],
        "states": [(value, STATE_WORDS.get(value, value), number) for value, number in of_states.items()],
        "state": state,
        "kind": kind,
        "total": visible.count(),
        "num_open": visible.filter(cleared_at=None).count(),
    }
    return render(request, "alerts/alert_list.html", context)


@require_GET
def rule_list(request: HttpRequest) -> HttpResponse:
    """All rules, with their limits and the source of each."""
    return render(request, "alerts/rule_list.html", {"rules": RULES})


@require_http_methods(["GET", "HEAD", "POST"])
def notifications(request: HttpRequest) -> HttpResponse:
    """The user's notification settings, and the latest messages with their outcome."""
    row = NotificationSettings.of(request.user)
    addresses = row.addresses  # before the form changes the row
    form = NotificationForm(request.POST if request.method == "POST" else None, instance=row)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, "Saved.")
        return redirect("alerts:notifications")
    context = {
        "form": form,
        "has_mail": settings.HAS_MAIL,
        "allowed": settings.WEBHOOK_ALLOW,
        "deliveries": Delivery.objects.visible_to(request.user)[:DELIVERIES_SHOWN],
        "addresses": addresses,
    }
    return render(request, "alerts/notifications.html", context, status=422 if form.errors else 200)


@require_POST
def send_test(request: HttpRequest) -> HttpResponse:
    """Queue a test message to each of the user's addresses."""
    count = queue_test(cast(User, request.user))
    if count:
        messages.info(request, "A test message is queued; reload this page to see its outcome.")
    else:
        messages.error(request, "Turn on e-mail or a webhook and save first; at most one test in ten seconds.")
    return redirect("alerts:notifications")
