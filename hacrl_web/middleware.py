"""Every page needs a login unless it says otherwise, and a busy database is said in words."""

import sys
from collections.abc import Callable

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.defaults import bad_request, page_not_found, server_error

from hacrl_web.errors import FieldErrors

API_PREFIX = "/api/"
BUSY = (OperationalError, InterfaceError)


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
        return busy(request) if isinstance(exception, BUSY) else None


class Refused:
    """What a page cannot show is said in words; forms say it beside their fields before it comes here."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, FieldErrors):
            return None
        context = {"code": exception.status, "text": " ".join(error.message for error in exception.errors)}
        return render(request, "refused.html", context, status=exception.status)


def busy(request: HttpRequest) -> HttpResponse:
    """The 503 of a page or of the API."""
    if request.path_info.startswith(API_PREFIX):
        response = _api_error("database_busy", "The database is busy. Try again in a moment.", 503)
    else:
        # Without the request: the frame of a logged-in page would ask the database who that is.
        response = HttpResponse(render_to_string("503.html"), status=503)
    response["Retry-After"] = "5"
    return response


def _api_error(code: str, message: str, status: int) -> HttpResponse:
    error = {"code": code, "message": message, "field": None}
    return JsonResponse({"error": error, "errors": [error]}, status=status)


def handler400(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Too many fields, a body that is no form: in the words of the page or of the API."""
    if request.path_info.startswith(API_PREFIX):
        return _api_error("bad_request", "This request cannot be read.", 400)
    return bad_request(request, exception)


def handler404(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path_info.startswith(API_PREFIX):
        return _api_error("not_found", "There is no such address.", 404)
    return page_not_found(request, exception)


def handler500(request: HttpRequest) -> HttpResponse:
    """What no view raised: a session that cannot be read is a busy database too, all else is our mistake."""
    if isinstance(sys.exc_info()[1], BUSY):
        return busy(request)
    if request.path_info.startswith(API_PREFIX):
        return _api_error("server_error", "This is a mistake of ours; the server's log tells what it was.", 500)
    return server_error(request)
