"""Run by test_features.py with the throw-away feature alone."""

import pytest
from django.core.management import call_command
from django.db import connection

from hacrl_web.runs.archive.deletion import hide_runs
from tests.support.web.factories import make_run

TABLE = "throw_away_note"
LINK = '<a href="/notes">Notes</a>'


@pytest.mark.django_db(transaction=True)
def test_feature_has_a_table_a_command_a_page_and_an_operation_and_its_table_can_go(web, user):
    run = make_run(user, name="swan")
    call_command("add_notes")
    assert web.get("/api/v1/notes").json() == ["note on swan"]
    page = web.get("/notes").content.decode()
    assert "<p>note on swan</p>" in page
    assert LINK in page
    assert LINK in web.get("/").content.decode()
    assert "/api/v1/notes" in web.get("/api/v1/openapi.json").json()["paths"]
    call_command("makemigrations", "--check")
    hide_runs([run])
    call_command("migrate", "throw_away", "zero", verbosity=0)
    assert TABLE not in connection.introspection.table_names()
    call_command("migrate", "throw_away", verbosity=0)  # as the tests' clean-up expects
