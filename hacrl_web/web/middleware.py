"""Every page needs a login unless it says otherwise, and a busy database is said in words."""

import logging
import sys
from collections.abc import Callable

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.core.exceptions import ObjectDoesNotExist
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.defaults import bad_request, page_not_found, server_error

from hacrl_web.web.errors import FieldError, FieldErrors

logger = logging.getLogger(__name__)
API_PREFIX = "/api/"
OPERATIONS_PREFIX = "/api/v1/"
BUSY = (OperationalError, InterfaceError)


class LoginRequired(LoginRequiredMiddleware):
    """Django's rule, but for the API, which answers 401 by itself instead of redirecting."""

    def process_view(self, request, view_func, view_args, view_kwargs):
        if request.path_info.startswith(OPERATIONS_PREFIX):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)


class WrongVerb:
    """405 in the one shape of the API, which ninja leaves plain, and as a page, which Django leaves empty."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code != 405:
            return response
        if not request.path_info.startswith(API_PREFIX):
            return _told(request, response) if request.method == "GET" and not response.content else response
        allowed = ", ".join(sorted(response["Allow"].split(", ")))  # from a set: in another order after each start
        shaped = _api_error("method_not_allowed", f"This address knows {allowed} only.", 405)
        shaped["Allow"] = allowed
        return shaped


def _told(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Where a form writes to, opened as a page: its address is in the browser's bar after a refusal."""
    text = "This address takes what a form sends. Go back to the page with the form."
    page = render(request, "refused.html", {"code": 405, "text": text}, status=405)
    page["Allow"] = response["Allow"]
    return page


class DatabaseBusy:
    """A locked or unreachable database is a 503 that says to try again, not a 500."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return busy(request) if isinstance(exception, BUSY) else None


class RefusalPages:
    """What a page cannot show is said in words; forms say it beside their fields before it comes here."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, ObjectDoesNotExist):
            return refused(request, gone(exception))
        return refused(request, exception) if isinstance(exception, FieldErrors) else None


def gone(error: ObjectDoesNotExist) -> FieldErrors:
    """What somebody else deletes while a request works on it; one that names what never was gets its 404 before."""
    logger.warning("Deleted while a request worked on it", exc_info=error)
    return FieldErrors([FieldError("not_found", "This was deleted in this moment.", None)], 404)


def refused(request: HttpRequest, errors: FieldErrors) -> HttpResponse:
    """What cannot be done, as a page or in the shape of the API."""
    if request.path_info.startswith(API_PREFIX):
        body = [error.as_dict() for error in errors.errors]
        return JsonResponse({"error": body[0], "errors": body}, status=errors.status)
    context = {"code": errors.status, "text": errors.text}
    return render(request, "refused.html", context, status=errors.status)


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
