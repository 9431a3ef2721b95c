"""The step of every request that ends roles of groups in their time."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from hacrl_web.accounts.oidc.service import without_old_roles
from hacrl_web.web.middleware import BUSY, Middleware, busy_response


class RolesOfGroups(Middleware):
    """Ends the roles that groups at the sign-in provider gave to a user who has not signed in there for long."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.OIDC is not None and request.user.is_authenticated and request.user.provider_seen_at:
            try:
                request.user = without_old_roles(settings.OIDC, request.user)
            except BUSY:
                return busy_response(request)
        return self.get_response(request)
