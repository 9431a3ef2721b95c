"""Three steps of every request: whom an API token stands for; who acts, for the audit log; what the own role allows.

The third looks at the address alone: an object's address and a verb that writes need a member of its project. So a
new page or operation is guarded before somebody thinks of it; objects that a request's body names are checked where
they are used (visibility.OfProject.save). Pages that are only a form are for members too, whatever the verb.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from hacrl_web.accounts.actor import acting, of_request
from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import require, require_here, require_some_project
from hacrl_web.accounts.tokens.tokens import READING, bearer, check_scope, find_token
from hacrl_web.accounts.visibility import rows_at
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.middleware import BUSY, OPERATIONS_PREFIX, busy, refused

# What people change there is their own, or these pages ask for the role themselves.
OWN_APPS = ("accounts", "alerts")
OWN_OPERATIONS = tuple(f"api/v1/{one}" for one in ("tokens", "notifications", "projects", "people"))


class TokenAuth:
    """Whoever holds a token is its owner from here on. One that is not right ends the request: no cookie helps."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        text = bearer(request.headers.get("Authorization", ""))
        if text is None or not request.path_info.startswith(OPERATIONS_PREFIX):
            return self.get_response(request)
        try:
            token = find_token(text)
            check_scope(token, request.method or "")
        except FieldErrors as errors:
            answer = refused(request, errors)
            if errors.status == 401:
                answer["WWW-Authenticate"] = "Bearer"
            return answer
        except BUSY:
            return busy(request)
        request.user, request.api_token = token.owner, token
        return self.get_response(request)


class AuditActor:
    """Everything that a request changes is done by whoever sent it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with acting(of_request(request)):
            return self.get_response(request)


class ProjectRoleGuard:
    """A viewer reads; what is not visible at all stays the view's 404."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> HttpResponse | None:
        match = request.resolver_match
        is_read = request.method in READING
        if is_read and not getattr(view, "is_for_members", False):
            return None
        if not request.user.is_authenticated or match is None:
            return None
        if set(match.app_names) & set(OWN_APPS) or match.route.startswith(OWN_OPERATIONS):
            return None
        try:
            rows = rows_at(match, request.user)
            if rows is not None:
                row = rows.select_related("project").first()
                if row is not None:
                    require(request.user, row.project, Role.MEMBER)
            elif is_read and not request.GET:
                require_here(request.user)
            else:  # a body or a query may name objects of another project than the one looked at
                require_some_project(request.user)
        except FieldErrors as errors:
            return refused(request, errors)
        return None
