"""Half of a character (a lone surrogate) in every text of every operation and form is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hacrl_web.api import api
from hacrl_web.web.errors import half_character
from tests.support.web.addresses import BODIES, PARAMETER, address, routes
from tests.support.web.addresses import mine as mine

HALF = "swan \ud800"


def texts_of(schema: dict[str, Any], parts: dict[str, Any], depth: int = 0) -> Iterator[Any]:
    """Values of a schema of the API's description, each with half of a character at another place."""
    schema = parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for one in schema.get("anyOf", ()):
        yield from texts_of(one, parts, depth)
    if schema.get("type") == "string" or not schema:
        yield HALF
    if schema.get("type") == "array" and depth < 4:
        yield from ([one] for one in texts_of(schema["items"], parts, depth + 1))
    if schema.get("type") == "object" and depth < 4:
        for name, field in schema.get("properties", {}).items():
            yield from ({name: one} for one in texts_of(field, parts, depth + 1))
        if "properties" not in schema:
            yield {"swan": HALF}
            yield {HALF: "swan"}


def test_every_text_of_every_operation(client, mine):
    client.force_login(mine.owner)
    client.raise_request_exception = False
    parts, tried = api.get_openapi_schema()["components"]["schemas"], 0
    for path, verbs in api.get_openapi_schema()["paths"].items():
        for verb, operation in verbs.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is None:
                continue
            route = next(one for one in routes() if PARAMETER.sub(r"{\2}", one) == path.lstrip("/"))
            for wrong in texts_of(body["schema"], parts):
                whole = BODIES.get(route, {}) | wrong if isinstance(wrong, dict) else wrong
                answer = client.generic(verb.upper(), address(route, mine), json.dumps(whole), "application/json")
                told = (verb, path, wrong, answer.status_code, answer.content[:300])
                assert answer.status_code == 422, told
                assert answer.json()["error"]["code"] in ("bad_character", "string_unicode"), told
                tried += 1
    print(f"{tried} texts of the API")
    assert tried >= 100


def test_every_form(client, mine):
    client.force_login(mine.owner)
    client.raise_request_exception = False
    tried = 0
    for route in (one for one in routes() if not one.startswith("api/")):
        for body in (b"name=swan+%ED%A0%80", b"title=a\xed\xa0\x80", b"%ED%BF%BFswan=1"):
            answer = client.generic("POST", address(route, mine), body, "application/x-www-form-urlencoded")
            assert 400 <= answer.status_code < 500, (route, answer.status_code)
            tried += 1
    assert tried >= 150


def test_every_form_with_files_and_every_query_stores_no_half_character(client, mine):
    """They are read as the sign for an unreadable character, or refused; nothing crashes over them."""
    client.force_login(mine.owner)
    client.raise_request_exception = False
    content = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nswan\xed\xa0\x80\r\n--x--\r\n'
    query = "?" + "&".join(f"{name}=swan%ED%A0%80" for name in ("q", "name", "tag", "state", "sort", "cursor", "next"))
    crashed, tried = [], 0
    for route in routes():
        place = address(route, mine)
        answers = [
            client.generic("POST", place, content, "multipart/form-data; boundary=x"),
            client.get(place + query),
            client.get(place, headers={"User-Agent": "swan \udced", "HX-Current-URL": "/runs/%ED%A0%80"}),
        ]
        crashed += [(route, one.status_code) for one in answers if one.status_code == 500]
        tried += len(answers)
    print(f"{tried} requests")
    assert crashed == []
    assert tried >= 600


def test_half_of_a_character_is_named_by_its_place():
    places = [
        ({"a": [1, {"b": HALF}]}, "a.1.b"),
        ([HALF], "0"),
        ({HALF: 1}, ""),
        ("é😀", None),
        ({"a": "\ufffd"}, None),
    ]
    assert [half_character(value) for value, _ in places] == [place for _, place in places]
