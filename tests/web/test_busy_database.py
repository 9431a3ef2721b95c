"""A request whose session cannot be read: 503 for a busy database, 500 for our own mistakes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, OperationalError

from tests.support.postgres import GET_IT, binaries, private_postgresql

IN_THE_WEB = "import hacrl_web.asgi"
IN_A_COMMAND = "import os, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'hacrl_web.settings'; django.setup()"
CONNECTS = """
import time
from django.db import OperationalError, connection
began = time.monotonic()
try:
    connection.ensure_connection()
except OperationalError:
    print(time.monotonic() - began)
"""
WAITS = """
from django.db import connection
for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        print(cursor.fetchone()[0])
"""


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


def test_requests_wait_for_a_lock_of_postgresql_for_15_s_and_commands_as_long_as_it_takes(tmp_path):
    if binaries() is None:
        pytest.skip(f"no PostgreSQL here; get it: {GET_IT}")
    with private_postgresql() as url:
        environment = {**os.environ, "DATABASE_URL": url, "HACRL_DATA": str(tmp_path)}
        waits = [
            subprocess.run([sys.executable, "-c", code + WAITS], env=environment, capture_output=True, text=True)
            for code in (IN_THE_WEB, IN_A_COMMAND)
        ]
    assert [done.stdout.split() for done in waits] == [["15s", "1min"], ["0", "0"]], waits[0].stderr + waits[1].stderr


def test_server_of_a_database_that_says_nothing_is_given_up_within_seconds(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgres://swan@127.0.0.1:{silent.getsockname()[1]}/swan?application_name=web"
        environment = {**os.environ, "DATABASE_URL": url, "HACRL_DATA": str(tmp_path)}
        command = [sys.executable, "-c", IN_A_COMMAND + CONNECTS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert 4 < float(done.stdout) < 40, done.stderr
