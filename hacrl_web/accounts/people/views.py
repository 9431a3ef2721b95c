"""Page of all people of the installation, for staff: open and close accounts, make a login link."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Prefetch
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from hacrl_web.accounts.models import LoginLink, Membership, User
from hacrl_web.accounts.people import people
from hacrl_web.web.errors import FieldErrors

PAGE_SIZE = 50


@require_GET
def people_list(request: HttpRequest) -> HttpResponse:
    return _show(request)


@never_cache
@require_POST
def person_change(request: HttpRequest, user_id: int) -> HttpResponse:
    """`do`: close (log out everywhere, let in no more), open, or link (a one-time login link, shown once)."""
    if not request.user.is_staff:
        raise Http404
    person = get_object_or_404(User, pk=user_id)
    by, do = cast(User, request.user), request.POST.get("do", "")
    if do == "link" and person.is_active and (by.is_superuser or not person.is_superuser):
        path = reverse("accounts:login_link", args=[LoginLink.objects.make(person)])
        return _show(request, link=request.build_absolute_uri(path), link_of=person)
    if do in ("close", "open"):
        try:
            people.set_active(by, person, do == "open")
            messages.success(request, f"The account of {person} is {'open' if do == 'open' else 'closed'}.")
        except FieldErrors as refused:
            messages.error(request, str(refused))
    else:
        messages.error(request, "That cannot be done with this account.")
    return redirect("accounts:people_list")


def _show(request: HttpRequest, **more: Any) -> HttpResponse:
    if not request.user.is_staff:
        raise Http404
    memberships = Prefetch("memberships", Membership.objects.select_related("project"))
    rows = User.objects.order_by("-is_active", "username").prefetch_related(memberships)
    page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    return render(request, "accounts/people_list.html", {"page": page, **more})
