"""Who calls the API, and how often: a token in the Authorization header, or a browser's session with its CSRF token."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from ninja.security import HttpBearer, SessionAuth
from ninja.throttling import BaseThrottle

from hacrl_web.accounts.tokens.tokens import READING

WINDOW_S = 60


class ApiTokenAuth(HttpBearer):
    """The user who owns the token; `accounts.middleware.TokenAuth` has already checked it."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        return request.user if hasattr(request, "api_token") else None


class Rate(BaseThrottle):
    """So many requests in each minute of one user, with whatever tokens, in one web process. 0: any number."""

    def __init__(self, setting: str, is_reading: bool) -> None:
        self.setting, self.is_reading = setting, is_reading

    def allow_request(self, request: HttpRequest) -> bool:
        most = getattr(settings, self.setting)
        if not most or (request.method in READING) != self.is_reading:
            return True
        key = f"{self.setting}-{request.user.pk}-{int(time.time() // WINDOW_S)}"
        cache.add(key, 0, 2 * WINDOW_S)
        with suppress(ValueError):  # thrown out in between
            return cache.incr(key) <= most
        return True

    def wait(self) -> float:
        """Seconds to the next window."""
        return WINDOW_S - time.time() % WINDOW_S


class BrowserAuth(SessionAuth):
    """A browser's session. Who has none is told to log in, and not that a form's token is missing."""

    def __call__(self, request: HttpRequest) -> Any:
        return super().__call__(request) if request.user.is_authenticated else None


# Tokens first: with a wrong one a browser's session does not help.
AUTH = (ApiTokenAuth(), BrowserAuth())


def rates() -> list[Any]:
    return [Rate("API_READS_PER_MINUTE", is_reading=True), Rate("API_WRITES_PER_MINUTE", is_reading=False)]
