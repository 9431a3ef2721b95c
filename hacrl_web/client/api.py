"""The Python client of an installation's API, for notebooks and scripts; the `hacrl` command uses it.

    with Client("https://hacrl.example.org", token) as client:
        run = client.launch({"name": "first", "group": 1, "benchmark": 1, "algorithm": "hacpo"})
        for event in client.follow(run["id"]):
            ...

It needs neither Django nor the trainer. docs/api.md describes the addresses.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

TERMINAL = frozenset({"completed", "failed", "stopped"})
PAGE = 200
TIMEOUT_S = 60.0
CONNECT_S = 10.0
TRIES = 4
MAX_WAIT_S = 60.0
POLL_S = 1.0
PATIENCE_S = 120.0  # longer than an upgrade of an installation
CHUNK_BYTES = 2**20
MAX_ANSWER = 2**28  # bytes of an answer in memory; the longest series of a run has a tenth


class ApiError(Exception):
    """A refusal of the API: `status` and `errors`, each {"code", "message", "field"}, some with "fixes"."""

    def __init__(self, status: int, errors: list[dict[str, Any]]) -> None:
        self.status = status
        self.errors = errors
        lines = [
            f"{error['field']}: {error['message']} ({error['code']})" if error.get("field") else error["message"]
            for error in errors
        ]
        super().__init__("\n".join(lines) or f"HTTP status {status}")

    @property
    def code(self) -> str:
        return str(self.errors[0]["code"]) if self.errors else ""


class Unreachable(Exception):
    """The address does not answer, or another program answers there."""


class Client:
    """An installation, used by one user. transport: for tests. Error: Unreachable for an invalid address or token."""

    def __init__(
        self, url: str, token: str, *, timeout_s: float = TIMEOUT_S, transport: httpx2.BaseTransport | None = None
    ) -> None:
        check_address(url)
        # A token that is invalid in a header is refused here: the library's error would show it.
        if not (token and token.isascii() and token.isprintable() and " " not in token):
            raise Unreachable("This is not an API token: it is empty, or has invalid characters.")
        self.url = url.rstrip("/")
        # Redirects are not followed: the token goes to this address only.
        try:
            self._http = httpx2.Client(
                base_url=self.url,  # checked by the library; requests name whole addresses
                headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
                timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S)),
                follow_redirects=False,
                transport=transport,
            )
        except (httpx2.InvalidURL, UnicodeError):
            raise Unreachable("This is not an address of an installation.") from None

    def __repr__(self) -> str:
        return f"Client({self.url!r})"  # without the token: notebooks store what they show

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # Requests

    def request(self, verb: str, path: str, **options: Any) -> httpx2.Response:
        """An answer of 2xx. An idempotent request is sent again where the installation is busy or asks to wait.

        Errors: ApiError, Unreachable.
        """
        headers = options.setdefault("headers", {})
        is_safe = verb in ("GET", "PUT", "DELETE") or "Idempotency-Key" in headers
        for tries_left in reversed(range(TRIES)):
            try:
                response = self._whole(verb, path, options)
            except httpx2.RequestError as error:
                if not (is_safe and tries_left) or isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                    raise Unreachable(f"{self.url} does not answer: {error}") from None
                time.sleep(POLL_S)
                continue
            if response.status_code not in (429, 503) or not tries_left or not is_safe:
                break
            wait = response.headers.get("Retry-After", "")
            time.sleep(min(float(wait) if wait.isascii() and wait.isdigit() else POLL_S, MAX_WAIT_S))
        if response.is_success:
            return response
        raise _error_of(response, self.url)

    def _address(self, path: str) -> str:
        """An address of this installation, whatever the path contains: the token goes to no other host."""
        return f"{self.url}/api/v1/{path.lstrip('/')}"

    def _whole(self, verb: str, path: str, options: dict[str, Any]) -> httpx2.Response:
        """Returns an answer with its decoded body. Errors: httpx2.RequestError; Unreachable if the body is too long."""
        with self._http.stream(verb, self._address(path), **options) as response:
            body = bytearray()
            for piece in response.iter_bytes(CHUNK_BYTES):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise Unreachable(f"{self.url} answered with more than {MAX_ANSWER // 2**20} MiB: is it HACRL Web?")
        packed = ("content-encoding", "content-length", "transfer-encoding")
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in packed]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)

    def get(self, path: str, /, **parameters: Any) -> Any:
        """The JSON of an address. A parameter of None is left out; a list repeats it."""
        return self.json_of(self.request("GET", path, params=_without_none(parameters)))

    def post(self, path: str, body: Any = None, *, key: str = "") -> Any:
        """key: an idempotency key, with which a launch happens once however often it is sent."""
        response = self.request("POST", path, json=body, headers={"Idempotency-Key": key} if key else {})
        return self.json_of(response) if response.content else None

    def upload(self, path: str, fields: Mapping[str, str], files: Mapping[str, Any]) -> Any:
        """A form with files; `files`: by field, (name, open file)."""
        return self.json_of(self.request("POST", path, data=fields, files=files))

    def delete(self, path: str) -> None:
        self.request("DELETE", path)

    def change(self, path: str, /, **changes: Any) -> Any:
        """Read an object, change it and write it; ApiError 412 where another change came in between.

        changes: new values by name; a function gets the old value and returns the new one.
        """
        current = self.request("GET", path)
        old = self.json_of(current)
        body = old | {name: new(old[name]) if callable(new) else new for name, new in changes.items()}
        return self.json_of(self.request("PUT", path, json=body, headers={"If-Match": current.headers["ETag"]}))

    def json_of(self, response: httpx2.Response) -> Any:
        """The JSON of an answer. Error: Unreachable for another body, such as a proxy's page."""
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise Unreachable(f"{self.url} answered, but not JSON: is it HACRL Web?") from None

    def pages(
        self, path: str, /, *, most: int | None = None, page_size: int | None = PAGE, **parameters: Any
    ) -> Iterator[Any]:
        """The items of a list, page by page; at most `most`. page_size: None for the list's own."""
        cursor: str | None = ""
        count = 0
        while cursor is not None:
            limit = page_size if page_size is None or most is None else min(page_size, most - count)
            page = self.get(path, **parameters, limit=limit, cursor=cursor or None)
            yield from page["items"]
            count += len(page["items"])
            following = page.get("next") if most is None or count < most else None
            if following is not None and following == cursor:
                raise Unreachable(f"{self.url} repeats the same page: is it HACRL Web?")
            cursor = following

    def save(self, path: str, target: Path, **parameters: Any) -> int:
        """Write an answer to a file, in pieces; its size in bytes. An incomplete answer leaves no file.

        Errors: ApiError, Unreachable, OSError.
        """
        unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        size = 0
        try:
            with self._http.stream("GET", self._address(path), params=_without_none(parameters)) as response:
                if not response.is_success:
                    response.read()
                    raise _error_of(response, self.url)
                with unfinished.open("xb") as file:
                    for piece in response.iter_bytes(CHUNK_BYTES):
                        size += file.write(piece)
            unfinished.replace(target)
        except httpx2.RequestError as error:
            raise Unreachable(f"{self.url} closed the connection: {error}") from None
        finally:
            unfinished.unlink(missing_ok=True)
        return size

    # Runs

    def launch(self, request: Mapping[str, Any], *, key: str = "") -> dict[str, Any]:
        """Launch a run, or a sweep (`algorithms` or `seeds`): once, even where its answer is lost.

        Group and benchmark by id or name. Error: ApiError.
        """
        path = "/sweeps" if is_sweep(request) else "/runs"
        body = dict(request)
        for field in ("group", "benchmark"):
            if isinstance(name := body.get(field), str) and not name.isdecimal():
                body[field] = self._id_of(field, name)
        answer: dict[str, Any] = self.post(path, body, key=key or uuid.uuid4().hex)
        return answer

    def _id_of(self, field: str, name: str) -> int:
        rows = [row["id"] for row in self.pages(f"/{field}s") if row["name"] == name]
        if len(rows) != 1:
            message = f"There {'are several' if rows else 'is no'} {field}{'s' if rows else ''} named {name!r}."
            raise ApiError(404, [{"code": "not_found", "message": message, "field": field}])
        return int(rows[0])

    def frame(self, run: str, after: int = 0) -> dict[str, Any]:
        """The next events of a run after a cursor, with its `status`, as browsers receive them."""
        answer: dict[str, Any] = self.get(f"/runs/{run}/events", after=after)
        return answer

    def frames(
        self, run: str, after: int = 0, *, poll_s: float = POLL_S, on_outage: Callable[[Exception], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Frames until the run has ended and all its events were returned. A frame without events: nothing new.

        After an outage the same cursor is requested again, for PATIENCE_S; `on_outage` is called when that begins.
        The first request must succeed. Errors: ApiError, Unreachable.
        """
        last_frame: float | None = None
        is_away = False
        while True:
            try:
                frame = self.frame(run, after)
            except (ApiError, Unreachable) as error:
                is_temporary = not isinstance(error, ApiError) or error.status == 429 or error.status >= 500
                if last_frame is None or time.monotonic() - last_frame > PATIENCE_S or not is_temporary:
                    raise
                if on_outage and not is_away:
                    on_outage(error)
                is_away = True
                time.sleep(poll_s)
                continue
            yield frame
            last_frame, is_away = time.monotonic(), False
            after = frame["seq"]
            if after < frame["last_seq"]:
                continue
            if frame["status"]["state"] in TERMINAL:
                return
            time.sleep(poll_s)

    def follow(
        self,
        run: str,
        after: int = 0,
        *,
        on_outage: Callable[[Exception], None] | None = None,
        on_status: Callable[[str], None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Every event of a run until the run has ended; restarts of the installation lose none.

        `on_status` is called with each new state and its reason: what a run waits for, or why it ended.
        """
        last = ""
        for frame in self.frames(run, after, on_outage=on_outage):
            state, reason = frame["status"]["state"], frame["status"].get("reason")
            text = f"{state}: {reason}" if reason else str(state)
            if on_status and text != last:
                on_status(text)
            last = text
            yield from frame["events"]


def metric_values(event: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of an event of type `metrics` by name; a ratio, recorded as (sum, count), is divided."""
    ratios = event["payload"].get("ratios") or {}
    quotients = {name: total / count if count else None for name, (total, count) in ratios.items()}
    return {**(event["payload"].get("values") or {}), **quotients}


def check_address(url: str) -> None:
    """Error: Unreachable."""
    if not url.startswith(("https://", "http://")):
        raise Unreachable("An address begins with https:// or http://.")


def is_sweep(request: Mapping[str, Any]) -> bool:
    return "algorithms" in request or "seeds" in request


def _without_none(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _error_of(response: httpx2.Response, url: str) -> Exception:
    """ApiError; Unreachable where the body is not one of the API's."""
    try:
        errors = response.json()["errors"]
        return ApiError(response.status_code, [dict(error) for error in errors])
    except (ValueError, KeyError, TypeError, RecursionError):
        return Unreachable(f"{url} answered with status {response.status_code}, but not as HACRL Web's API.")
