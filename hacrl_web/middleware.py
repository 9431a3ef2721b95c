"""Every page needs a login unless it says otherwise, and a busy database is said in words."""

from collections.abc import Callable

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

API_PREFIX = "/api/"


class LoginRequired(LoginRequiredMiddleware):
    """Django's rule, but for the API, which answers 401 by itself instead of redirecting."""

    def process_view(self, request, view_func, view_args, view_kwargs):
        if request.path_info.startswith(API_PREFIX):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)


class DatabaseBusy:
    """A locked or unreachable database is a 503 that says to try again, not a 500."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, OperationalError):
            return None
        message = "The database is busy. Try again in a moment."
        if request.path_info.startswith(API_PREFIX):
            error = {"code": "database_busy", "message": message, "field": None}
            response: HttpResponse = JsonResponse({"error": error, "errors": [error]}, status=503)
        else:
            response = render(request, "503.html", {"message": message}, status=503)
        response["Retry-After"] = "5"
        return response
