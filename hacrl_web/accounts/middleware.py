"""Steps of every request: the user of its API token, the actor for the audit log, the user's role.

The role check needs the address alone: a verb that writes, on an object's address, requires a member of the object's
project. It therefore covers new pages and operations without any code of theirs. Objects named in a request's body are
checked where they are used (visibility.ProjectRow.save). Pages that are only a form require a member for every verb.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from hacrl_web.accounts.audit.actor import acting, of_request
from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import require, require_here, require_some_project
from hacrl_web.accounts.roles.visibility import rows_at
from hacrl_web.accounts.tokens.service import READING, bearer, check_scope, find_token
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.middleware import BUSY, OPERATIONS_PREFIX, Middleware, busy_response, refusal_response

METRICS_PATH = "/metrics"  # monitoring sends a token too
# These change only objects of the user, or check the role themselves.
OWN_APPS = ("accounts", "oidc", "alerts")
OWN_OPERATIONS = (
    *(f"api/v1/{one}" for one in ("tokens", "hub-token", "notifications", "projects", "people")),
    *("account/hub-token", "projects/<int:project_id>/hub-token"),
)


class TokenAuth(Middleware):
    """Sets the user to the owner of the API token. An invalid token is refused, also beside a valid session."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        text = bearer(request.headers.get("Authorization", ""))
        if text is None or not request.path_info.startswith((OPERATIONS_PREFIX, METRICS_PATH)):
            return self.get_response(request)
        try:
            token = find_token(text)
            check_scope(token, request.method or "")
        except FieldErrors as errors:
            answer = refusal_response(request, errors)
            if errors.status == 401:
                answer["WWW-Authenticate"] = "Bearer"
            return answer
        except BUSY:
            return busy_response(request)
        request.user, request.api_token = token.owner, token
        return self.get_response(request)


class AuditActor(Middleware):
    """Attributes all changes of a request to its sender."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with acting(of_request(request)):
            return self.get_response(request)


class ProjectRoleGuard(Middleware):
    """Viewers may only read. For an invisible object the view answers 404."""

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
            else:  # a body or a query may name objects of a project other than the current one
                require_some_project(request.user)
        except FieldErrors as errors:
            return refusal_response(request, errors)
        return None
