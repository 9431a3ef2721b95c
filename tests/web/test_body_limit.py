"""Requests that are too large are refused while they are received, whatever their Content-Length."""

import json

import pytest
from asgiref.sync import async_to_sync

from hacrl_web.accounts.tokens.service import make_token
from hacrl_web.body_limit import MAX_BYTES, MAX_UPLOAD_REQUEST_BYTES, LimitBody, is_logged_in

CHUNK = b"x" * 2**16


async def anybody(scope) -> bool:
    return True


async def nobody(scope) -> bool:
    return False


async def ask(path: str, size: int, headers=(), may_upload=anybody) -> tuple[int, bytes, int]:
    """Status, body of the answer, and how many bytes were taken from the client."""
    taken = 0
    sent = []

    async def application(scope, receive, send):
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        if message["type"] == "http.request":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

    async def receive():
        nonlocal taken
        body = CHUNK[: size - taken]
        taken += len(body)
        return {"type": "http.request", "body": body, "more_body": taken < size}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers)}
    await LimitBody(application, may_upload)(scope, receive, send)
    return sent[0]["status"], sent[1]["body"], taken


async def test_body_at_the_limit_goes_through():
    assert await ask("/api/v1/models", MAX_BYTES) == (200, b"ok", MAX_BYTES)
    assert (await ask("/benchmarks/new", MAX_UPLOAD_REQUEST_BYTES))[0] == 200


@pytest.mark.parametrize(
    ("path", "most"),
    [("/api/v1/models", MAX_BYTES), ("/", MAX_BYTES), ("/api/v1/benchmarks", MAX_UPLOAD_REQUEST_BYTES)],
)
async def test_body_above_the_limit_is_cut_off_while_it_comes_in(path, most):
    status, body, taken = await ask(path, 520 * 2**20)
    assert status == 413
    assert taken <= most + len(CHUNK)
    if path.startswith("/api/"):
        assert json.loads(body)["error"]["code"] == "too_large"


async def test_announced_length_above_the_limit_is_refused_unread():
    for length in (b"%d" % (MAX_BYTES + 1), b"9" * 5000):
        status, _, taken = await ask("/models/new", 10, [(b"content-length", length)])
        assert (status, taken) == (413, 0)


@pytest.mark.parametrize("length", [b"-1", b"x", b"", b"10", "１".encode()])
async def test_announced_length_is_not_believed(length):
    assert (await ask("/models/new", MAX_BYTES + 1, [(b"content-length", length)]))[0] == 413
    assert (await ask("/models/new", 10, [(b"content-length", length)]))[0] == 200


@pytest.mark.parametrize("path", ["/benchmarks/new", "/api/v1/benchmarks", "/models/new"])
async def test_form_without_a_length_is_refused_as_such(path):
    """Django would read no field of it, and name the first one as missing."""
    headers = [(b"content-type", b"multipart/form-data; boundary=B"), (b"transfer-encoding", b"chunked")]
    status, body, taken = await ask(path, 100, headers)
    assert (status, taken) == (411, 0)
    assert b"Transfer-Encoding: chunked" in body
    assert (await ask(path, 100, [headers[0], (b"content-length", b"100")]))[0] == 200
    assert (await ask(path, 100, [(b"content-type", b"application/json"), headers[1]]))[0] == 200


async def test_visitor_sends_no_files():
    status, _, taken = await ask("/benchmarks/new", 520 * 2**20, may_upload=nobody)
    assert status == 413
    assert taken <= MAX_BYTES + len(CHUNK)


@pytest.mark.django_db(transaction=True)
def test_session_of_somebody_who_is_logged_in_is_known(client, django_user_model, settings):
    client.force_login(django_user_model.objects.create_user("ada"))
    key = client.session.session_key

    def knows(cookie: str) -> bool:
        return async_to_sync(is_logged_in)({"headers": [(b"cookie", cookie.encode())]})

    name = settings.SESSION_COOKIE_NAME
    assert knows(f"a=b; {name}={key}")
    for cookie in ("", f"{name}=", f"{name}={'x' * 32}", f"{name}=\x00", key, f"other={key}"):
        assert not knows(cookie)
    # A proxy in front may ask for a login of its own.
    basic = [(b"cookie", f"{name}={key}".encode()), (b"authorization", b"Basic YTpi")]
    assert async_to_sync(is_logged_in)({"headers": basic})
    client.logout()
    assert not knows(f"{name}={key}")


@pytest.mark.django_db(transaction=True)
def test_token_that_may_not_write_does_not_upload(django_user_model):
    owner = django_user_model.objects.create_user("ada")
    for scope, is_let_in in (("read", False), ("write", True)):
        text = make_token(owner, name=scope, scopes=[scope], days=1)[1]
        request = {"method": "POST", "headers": [(b"authorization", f"Bearer {text}".encode())]}
        assert async_to_sync(is_logged_in)(request) is is_let_in
