"""The REST API: routers of the apps, one error shape, session authentication with CSRF."""

from collections.abc import Callable, Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, RawPostDataException
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.security import django_auth

from hacrl_web.alerts.api import router as alerts_router
from hacrl_web.errors import FieldError, FieldErrors, plain_message
from hacrl_web.insight.api import router as insight_router
from hacrl_web.registry.api import router as registry_router
from hacrl_web.registry.benchmark_api import router as benchmark_router
from hacrl_web.runs.api import router as runs_router
from hacrl_web.runs.sweep_api import router as sweeps_router


def _for_users(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The description of the API is for whoever may use it."""

    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return not_logged_in(request, AuthenticationError())
        return view(request, *args, **kwargs)

    return guarded


api = NinjaAPI(title="HACRL Web", version="1", auth=django_auth, docs_url=None, docs_decorator=_for_users)
api.add_router("", registry_router)
api.add_router("", benchmark_router)
api.add_router("", runs_router)
api.add_router("", sweeps_router)
api.add_router("", alerts_router)
api.add_router("", insight_router)


def _answer(request: HttpRequest, errors: list[FieldError], status: int) -> HttpResponse:
    body = [error.as_dict() for error in errors]
    return api.create_response(request, {"error": body[0], "errors": body}, status=status)


@api.exception_handler(FieldErrors)
def field_errors(request: HttpRequest, exception: FieldErrors) -> HttpResponse:
    return _answer(request, exception.errors, exception.status)


@api.exception_handler(ValidationError)
def malformed(request: HttpRequest, exception: ValidationError) -> HttpResponse:
    errors = [FieldError(str(e.get("type", "invalid")), plain_message(e), _field(e["loc"])) for e in exception.errors]
    return _answer(request, errors, 422)


def _field(location: Sequence[str | int]) -> str | None:
    """Dotted path without what only our code knows: ninja says ("body", name of the parameter, key, ...)."""
    keys = location[2:] if location[0] == "body" else location[1:]
    return ".".join(str(key) for key in keys) or None


@api.exception_handler(Http404)
def not_found(request: HttpRequest, exception: Http404) -> HttpResponse:
    return _answer(request, [FieldError("not_found", "There is no such object.", None)], 404)


@api.exception_handler(AuthenticationError)
def not_logged_in(request: HttpRequest, exception: AuthenticationError) -> HttpResponse:
    return _answer(request, [FieldError("not_authenticated", "Log in first.", None)], 401)


@api.exception_handler(RawPostDataException)
def not_json(request: HttpRequest, exception: RawPostDataException) -> HttpResponse:
    """A form was sent where JSON is read: the check of its CSRF token has used the body up."""
    error = FieldError("unsupported_media_type", "Send JSON, with Content-Type: application/json.", None)
    return _answer(request, [error], 415)


@api.exception_handler(HttpError)
def refused(request: HttpRequest, exception: HttpError) -> HttpResponse:
    """What ninja itself refuses: a body that is not JSON."""
    return _answer(request, [FieldError("bad_request", str(exception), None)], exception.status_code)
