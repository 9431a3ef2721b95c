"""Every error under /api/ has the one error body."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

pytestmark = pytest.mark.django_db


def error_of(response) -> dict:
    body = response.json()
    assert set(body) == {"error", "errors"}
    assert body["error"] == body["errors"][0]
    assert body["error"]["message"]
    return body["error"]


@pytest.mark.parametrize("path", ["runs", "sweeps", "models", "groups"])
def test_form_data_in_place_of_json_has_its_own_error(client, user, path):
    client.force_login(user)
    client.handler.enforce_csrf_checks = True
    client.get("/account")
    token = client.cookies["hacrl_csrf"].value
    file = SimpleUploadedFile("x", b"y")
    response = client.post(f"/api/v1/{path}", {"file": file}, headers={"X-CSRFToken": token})
    assert response.status_code in (400, 415)
    assert error_of(response)["code"] in ("unsupported_media_type", "bad_request")


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (None, "send the CSRF token"),
        ("null", "names another address"),
        ("http://testserver:81", "port included"),
        ("https://testserver", "names another address"),
    ],
)
def test_request_of_another_origin_is_told_from_one_without_a_token(client, user, origin, said):
    client.force_login(user)
    client.handler.enforce_csrf_checks = True
    headers = {"Origin": origin} if origin else {}
    response = client.post("/api/v1/runs", {}, content_type="application/json", headers=headers)
    assert response.status_code == 403
    assert said in error_of(response)["message"]


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ('{"seed": NaN}', "seed", "Must be a finite number. You gave nan."),
        ('{"training": {"learning_rate": -Infinity}}', "training.learning_rate", "Must be a finite number."),
        ('{"name": "a", "name": "b"}', None, "The key 'name' appears twice in one object: remove one."),
        ('{"training": {"steps": 1, "steps": 2}}', None, "The key 'steps' appears twice in one object"),
        (f'{{"seed": {"9" * 5000}}}', None, "One of its numbers has too many digits."),
        ("[1]", None, "Must be an object with settings."),
    ],
)
def test_valid_json_is_not_called_unreadable_for_another_fault(client, user, body, field, said):
    client.force_login(user)
    answer = client.post("/api/v1/runs", body, content_type="application/json").json()
    assert [error for error in answer["errors"] if error["field"] == field and said in error["message"]]


def test_unknown_address_is_an_error_in_json(client, user):
    client.force_login(user)
    response = client.get("/api/v1/nothing")
    assert response.status_code == 404
    assert error_of(response)["code"] == "not_found"


def test_server_error_is_an_error_in_json(client, user, monkeypatch):
    def broken(*_):
        raise KeyError("a mistake")

    monkeypatch.setattr("hacrl_web.runs.launch.api.launch", broken)
    client.force_login(user)
    client.raise_request_exception = False
    response = client.post("/api/v1/runs", {}, content_type="application/json")
    assert response.status_code == 500
    assert error_of(response)["code"] == "server_error"


def test_error_texts_are_ours_and_not_the_frameworks(client, user):
    client.force_login(user)
    response = client.post("/api/v1/groups", {"name": "g", "agents": 3, "x": 1}, content_type="application/json")
    assert response.status_code == 422
    messages = {e["field"]: e["message"] for e in response.json()["errors"]}
    assert messages == {"agents": "Must be a list.", "x": "There is no setting of this name."}


@pytest.mark.parametrize("text", ["}q", "{", "{0}", "%s"])
def test_quoted_input_in_a_refusal_is_not_formatted(client, user, text):
    client.force_login(user)
    response = client.get("/api/v1/runs/00000000-0000-0000-0000-000000000000/config", {"against": text})
    assert response.status_code == 422
    assert "UUID" in error_of(response)["message"]
