"""A request whose session cannot be read: 503 for a busy database, 500 for our own mistakes."""

from __future__ import annotations

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, OperationalError

pytestmark = pytest.mark.once


@pytest.mark.parametrize("error", [OperationalError("database is locked"), InterfaceError("connection is closed")])
@pytest.mark.parametrize("path", ["/", "/runs/", "/login", "/api/v1/runs"])
def test_session_that_cannot_be_read_is_a_busy_database(client, user, monkeypatch, error, path):
    client.force_login(user)
    client.raise_request_exception = False

    def load(self):
        raise error

    monkeypatch.setattr(SessionStore, "load", load)
    answer = client.get(path)
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    if path.startswith("/api/"):
        assert answer.json()["error"]["code"] == "database_busy"
    else:
        assert "The database is busy. Try again in a moment." in answer.content.decode()


def test_other_exceptions_stay_a_500(client, user, monkeypatch):
    client.force_login(user)
    client.raise_request_exception = False
    monkeypatch.setattr("hacrl_web.runs.workspace.views.page_of", lambda *_: 1 / 0)
    answer = client.get("/runs/")
    assert answer.status_code == 500
    assert "busy" not in answer.content.decode()
