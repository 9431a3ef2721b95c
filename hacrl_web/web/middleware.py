"""The login that every page needs, and the error answers of pages and API: 404, 405, 503, 507, refusals."""

import logging
import sys
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.core.exceptions import ObjectDoesNotExist
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.defaults import bad_request, page_not_found, server_error

from hacrl_web.ops.disk_space import disk_error
from hacrl_web.web.errors import API_PREFIX, FieldErrors

logger = logging.getLogger(__name__)
OPERATIONS_PREFIX = "/api/v1/"
FORM = "application/x-www-form-urlencoded"
CSRF_REASON = "hacrl.csrf_reason"  # in META
BUSY = (OperationalError, InterfaceError)


class LoginRequired(LoginRequiredMiddleware):
    """Django's rule for pages only: the API answers 401 itself instead of redirecting."""

    def process_view(self, request, view_func, view_args, view_kwargs):
        if request.path_info.startswith(OPERATIONS_PREFIX):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)


class Middleware:
    """Passes each request on unchanged; subclasses change this."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)


class Unstored(Middleware):
    """No browser or proxy keeps a page, an answer of the API or a download. Static files are answered before this."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response["Cache-Control"] = "no-store, private"
        return response


class ReadableForms(Middleware):
    """400 for a form that is not UTF-8, such as half of a character: Django would store another one in its place."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.content_type == FORM and not request.path_info.startswith(API_PREFIX):
            try:
                unquote_to_bytes(request.body.replace(b"+", b" ")).decode()
            except UnicodeDecodeError as error:
                return handler400(request, error)
        return self.get_response(request)


class WrongVerb(Middleware):
    """405 with a body: ninja and Django leave it empty."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code != 405:
            return response
        allowed = ", ".join(sorted(response["Allow"].split(", ")))  # a set's order changes with each start
        if request.path_info.startswith(API_PREFIX):
            error = FieldErrors.single("method_not_allowed", f"This address allows {allowed} only.", status=405)
        elif request.method == "GET" and not response.content:
            # After a refusal the browser's bar shows the address that the form was sent to.
            text = "This address only receives a form. Go back to the page with the form."
            error = FieldErrors.single("method_not_allowed", text, status=405)
        else:
            return response
        answer = refusal_response(request, error)
        answer["Allow"] = allowed
        return answer


class RefusalPages(Middleware):
    """Answers exceptions of views: refusals, objects that were just deleted, and a busy database."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if full := disk_error(exception):
            return full_response(request, full)
        if isinstance(exception, BUSY):
            return busy_response(request)
        if isinstance(exception, ObjectDoesNotExist):
            return refusal_response(request, gone_error(exception))
        return refusal_response(request, exception) if isinstance(exception, FieldErrors) else None


def gone_error(error: ObjectDoesNotExist) -> FieldErrors:
    """404 for an object that another request deleted during this one."""
    logger.warning("Deleted while a request used it", exc_info=error)
    return FieldErrors.single("not_found", "This was deleted a moment ago.", status=404)


def refusal_response(request: HttpRequest, errors: FieldErrors) -> HttpResponse:
    """A refusal, as a page or as the error body of the API."""
    if request.path_info.startswith(API_PREFIX):
        return JsonResponse(errors.as_body(), status=errors.status)
    context = {"code": errors.status, "text": errors.text}
    return render(request, "refused.html", context, status=errors.status)


def busy_response(request: HttpRequest) -> HttpResponse:
    """503 of a page or of the API."""
    if request.path_info.startswith(API_PREFIX):
        response = _api_error("database_busy", "The database is busy. Try again in a moment.", 503)
    else:
        # Rendered without the request: the frame of a logged-in page would read the user from the database.
        response = HttpResponse(render_to_string("503.html"), status=503)
    response["Retry-After"] = "5"
    return response


def full_response(request: HttpRequest, full: FieldErrors) -> HttpResponse:
    """507 of a page or of the API; without the request, as busy_response."""
    logger.warning("%s", full.text)
    if request.path_info.startswith(API_PREFIX):
        return JsonResponse(full.as_body(), status=full.status)
    return HttpResponse(render_to_string("507.html", {"text": full.text}), status=full.status)


def _api_error(code: str, message: str, status: int) -> HttpResponse:
    return JsonResponse(FieldErrors.single(code, message).as_body(), status=status)


def handler400(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Too many fields, or a body that is not a form."""
    is_api = request.path_info.startswith(API_PREFIX)
    return _api_error("bad_request", "This request cannot be read.", 400) if is_api else bad_request(request, exception)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The page of a refused form, not shown to the API, which answers itself. reason: Django's, by which another origin
    is known from an old token; META keeps it for the API."""
    request.META[CSRF_REASON] = reason
    return render(request, "403_csrf.html", {"is_elsewhere": is_elsewhere(request)}, status=403)


def is_elsewhere(request: HttpRequest) -> bool:
    """Whether a request without a valid CSRF token was refused because another address sent it."""
    return request.META.get(CSRF_REASON, "").startswith(("Origin checking", "Referer checking"))


def handler404(request: HttpRequest, exception: Exception) -> HttpResponse:
    is_api = request.path_info.startswith(API_PREFIX)
    return _api_error("not_found", "There is no such address.", 404) if is_api else page_not_found(request, exception)


def handler500(request: HttpRequest) -> HttpResponse:
    """Exceptions outside of views; a session that cannot be read is a busy database."""
    if full := disk_error(sys.exc_info()[1]):
        return full_response(request, full)
    if isinstance(sys.exc_info()[1], BUSY):
        return busy_response(request)
    if request.path_info.startswith(API_PREFIX):
        return _api_error("server_error", "The server failed: this is our mistake. Its log has the cause.", 500)
    return server_error(request)
