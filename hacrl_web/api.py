"""The REST API: routers of the apps, authentication, rate limits and the one error body.

Unknown query parameters and unknown keys of a body are refused.
"""

import codecs
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse, RawPostDataException
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.operation import Operation
from ninja.parser import Parser
from ninja.security import HttpBearer, SessionAuth
from ninja.throttling import BaseThrottle

from hacrl_web.accounts.people.api import router as projects_router
from hacrl_web.accounts.tokens.api import router as tokens_router
from hacrl_web.accounts.tokens.service import READING
from hacrl_web.demo.api import router as demo_router
from hacrl_web.features import feature_modules
from hacrl_web.insight.api import router as insight_router
from hacrl_web.leaderboard.api import router as leaderboard_router
from hacrl_web.registry.agent_groups.api import router as groups_router
from hacrl_web.registry.benchmarks.api import router as benchmark_router
from hacrl_web.registry.hub_tokens.api import router as hub_tokens_router
from hacrl_web.registry.language_models.api import router as models_router
from hacrl_web.registry.prompts.api import router as prompts_router
from hacrl_web.registry.rewards.api import judges_router
from hacrl_web.registry.rewards.api import router as reward_functions_router
from hacrl_web.runs.archive.api import router as archive_router
from hacrl_web.runs.launch.api import router as launch_router
from hacrl_web.runs.live.api import router as events_router
from hacrl_web.runs.run.api import router as run_router
from hacrl_web.runs.sweeps.api import router as sweeps_router
from hacrl_web.runs.telemetry.api import router as telemetry_router
from hacrl_web.runs.worker.api import router as hosts_router
from hacrl_web.runs.workspace.api import router as workspace_router
from hacrl_web.web.errors import FieldError, FieldErrors, half_character, plain_message
from hacrl_web.web.middleware import gone_error, is_elsewhere

View = Callable[..., HttpResponse]
WINDOW_S = 60
NOT_JSON = "The body cannot be read: send one JSON object, in UTF-8."
CSRF_REFUSED = "With a browser's session, send the CSRF token of our pages (X-CSRFToken); scripts send an API token."


ELSEWHERE = (
    "The header Origin or Referer names another address than this request went to: use the address of the pages, port "
    "included, or an API token; a proxy passes Host and X-Forwarded-Proto on."
)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Error: FieldErrors if it has a key twice, of which a parser would silently take one."""
    data: dict[str, Any] = {}
    for name, value in pairs:
        if name in data:
            raise FieldErrors.single("repeated_key", f"The key {name[:80]!r} appears twice in one object: remove one.")
        data[name] = value
    return data


class TextParser(Parser):
    """JSON with each key once and texts that a database can store; ninja answers with the error as its cause."""

    def parse_body(self, request: HttpRequest) -> Any:
        data = json.loads(request.body, object_pairs_hook=_object)
        if (path := half_character(data)) is not None:
            text = "Must be valid Unicode, and must not contain half of a character (a lone surrogate)."
            raise FieldErrors.single("bad_character", text, path or None)
        return data


class ApiTokenAuth(HttpBearer):
    """The owner of the token; `accounts.middleware.TokenAuth` has already checked it."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        return request.user if hasattr(request, "api_token") else None


class BrowserAuth(SessionAuth):
    """A browser's session with its CSRF token. A visitor is refused as a visitor, not for a missing CSRF token."""

    def __call__(self, request: HttpRequest) -> Any:
        try:
            return super().__call__(request) if request.user.is_authenticated else None
        except MultiPartParserError:  # the CSRF check reads the body; Django would log it as an error of ours
            raise FieldErrors.single("not_json", NOT_JSON, status=400) from None


class Rate(BaseThrottle):
    """Limits the requests of one user in each minute, in one web process. A setting of 0 means no limit."""

    def __init__(self, setting: str, is_reading: bool) -> None:
        self.setting, self.is_reading = setting, is_reading

    def allow_request(self, request: HttpRequest) -> bool:
        limit = getattr(settings, self.setting)
        if not limit or (request.method in READING) != self.is_reading:
            return True
        key = f"{self.setting}-{request.user.pk}-{int(time.time() // WINDOW_S)}"
        cache.add(key, 0, 2 * WINDOW_S)
        with suppress(ValueError):  # the cache dropped the key in between
            return cache.incr(key) <= limit
        return True

    def wait(self) -> float:
        """Seconds to the next window."""
        return WINDOW_S - time.time() % WINDOW_S


# The token first: an invalid token is refused also beside a valid session.
AUTH = (ApiTokenAuth(), BrowserAuth())
RATES: list[BaseThrottle] = [
    Rate("API_READS_PER_MINUTE", is_reading=True),
    Rate("API_WRITES_PER_MINUTE", is_reading=False),
]


def _for_users(view: View) -> View:
    """The description of the API requires a login or a token, like the API."""

    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            if not any(auth(request) for auth in AUTH):
                raise AuthenticationError
        except Exception as error:
            return api.on_exception(request, error)
        return view(request, *args, **kwargs)

    return guarded


def _strict(run: View) -> View:
    """An operation that refuses unknown query parameters and bodies of another content type."""
    operation: Operation = run.__self__  # type: ignore[attr-defined]
    sources = {model.__ninja_param_source__: model for model in operation.models}
    query = sources.get("query")
    names = set(query.__ninja_flatten_map__) if query else set()
    kind = "application/json" if "body" in sources else "multipart/form-data" if "file" in sources else ""

    @wraps(run)
    def checked(request: HttpRequest, **values: Any) -> HttpResponse:
        errors, status = _unknown(request, names), 422
        if kind and request.content_type != kind and request.META.get("CONTENT_LENGTH") not in (None, "", "0"):
            errors, status = [FieldError("unsupported_media_type", f"Send it with Content-Type: {kind}.", None)], 415
        if not errors:
            return run(request, **values)
        # A caller without permission gets that refusal, and no hint about parameters.
        return operation._run_checks(request) or _answer(request, errors, status)

    return checked


def _unknown(request: HttpRequest, names: set[str]) -> list[FieldError]:
    hint = f"it has {', '.join(sorted(names))}" if names else "it has none"
    return [
        FieldError("unknown_parameter", f"This address has no query parameter of this name; {hint}.", name[:80])
        for name in request.GET
        if name not in names
    ]


api = NinjaAPI(
    title="HACRL Web",
    version="1",
    auth=list(AUTH),
    throttle=RATES,
    parser=TextParser(),
    docs_url=None,
    docs_decorator=_for_users,
)
api.add_decorator(_strict, mode="view")
for router in (
    *(tokens_router, hub_tokens_router, projects_router, models_router, groups_router),
    *(benchmark_router, prompts_router, reward_functions_router, judges_router, launch_router),
    *(run_router, archive_router, hosts_router, events_router, telemetry_router, sweeps_router),
    *(workspace_router, insight_router, leaderboard_router, demo_router),
    *(module.router for module in feature_modules("api")),
):
    api.add_router("", router)


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """The API reference: its description, shown by ninja's copy of Swagger UI."""
    return render(request, "api_docs.html", {"description": reverse("api-1:openapi-json")})


def _answer(request: HttpRequest, errors: list[FieldError], status: int) -> HttpResponse:
    response = api.create_response(request, FieldErrors(errors).as_body(), status=status)
    if status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


@api.exception_handler(FieldErrors)
def field_errors(request: HttpRequest, exception: FieldErrors) -> HttpResponse:
    return _answer(request, exception.errors, exception.status)


@api.exception_handler(ValidationError)
def malformed(request: HttpRequest, exception: ValidationError) -> HttpResponse:
    errors = [FieldError(str(e.get("type", "invalid")), plain_message(e), _field(e["loc"])) for e in exception.errors]
    return _answer(request, errors, 422)


def _field(location: Sequence[str | int]) -> str | None:
    """Dotted path without the names of Python parameters: ninja's path is ("body", parameter, key, ...)."""
    keys = location[2:] if location[0] == "body" else location[1:]
    return ".".join(str(key) for key in keys) or None


@api.exception_handler(Http404)
def not_found(request: HttpRequest, exception: Http404) -> HttpResponse:
    return _answer(request, [FieldError("not_found", "There is no such object.", None)], 404)


@api.exception_handler(ObjectDoesNotExist)
def deleted_meanwhile(request: HttpRequest, exception: ObjectDoesNotExist) -> HttpResponse:
    return field_errors(request, gone_error(exception))


@api.exception_handler(AuthenticationError)
def not_logged_in(request: HttpRequest, exception: AuthenticationError) -> HttpResponse:
    return _answer(request, [FieldError("not_authenticated", "Log in, or send an API token.", None)], 401)


@api.exception_handler(RawPostDataException)
def not_json(request: HttpRequest, exception: RawPostDataException) -> HttpResponse:
    """A form in place of JSON: the check of its CSRF token has consumed the body."""
    error = FieldError("unsupported_media_type", "Send JSON, with Content-Type: application/json.", None)
    return _answer(request, [error], 415)


@api.exception_handler(HttpError)
def refusal_answer(request: HttpRequest, exception: HttpError) -> HttpResponse:
    """Refusals by ninja: a body that is not JSON, a session without its CSRF token, too many requests."""
    if isinstance(exception.__cause__, FieldErrors):
        return field_errors(request, exception.__cause__)
    code = {403: "csrf_failed", 429: "too_many_requests"}.get(exception.status_code, "bad_request")
    refused = ELSEWHERE if is_elsewhere(request) else CSRF_REFUSED
    message = {"csrf_failed": refused, "bad_request": NOT_JSON}.get(code, str(exception))
    if code == "bad_request" and (reason := _why_unreadable(request)):
        message = f"{NOT_JSON} {reason}"
    return _answer(request, [FieldError(code, message, None)], exception.status_code)


def _why_unreadable(request: HttpRequest) -> str:
    """Why a body is no JSON, as a sentence; empty if that is not known."""
    try:
        body = request.body
    except (RawPostDataException, OSError):
        return ""
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or body[:2].count(0) == 1:
        return "This one is UTF-16."
    if body.startswith(codecs.BOM_UTF8):
        return "This one begins with a byte order mark: leave it out."
    try:
        json.loads(body.decode())
    except UnicodeDecodeError as error:
        return f"Byte {error.start + 1} is not UTF-8."
    except RecursionError:
        return "This one is nested too deeply."
    except json.JSONDecodeError as error:
        return f"{error}."
    except ValueError:  # Python's limit on the digits of a whole number
        return "One of its numbers has too many digits."
    return ""
