"""Requests that are too large end while they come in, whatever length they announce."""

import json

import pytest

from hacrl_web.body_limit import MAX_BYTES, MAX_UPLOAD_REQUEST_BYTES, LimitBody

CHUNK = b"x" * 2**16


async def ask(path: str, size: int, headers=()) -> tuple[int, bytes, int]:
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

    await LimitBody(application)({"type": "http", "path": path, "headers": list(headers)}, receive, send)
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
