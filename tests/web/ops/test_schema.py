"""What a start says of the database."""

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from hacrl_web.ops.schema import bring_up_to_date, left_tables

pytestmark = pytest.mark.django_db


def test_start_names_a_feature_that_was_switched_off_with_its_tables(caplog):
    assert left_tables() == []
    MigrationRecorder(connection).record_applied("notes", "0001_initial")
    bring_up_to_date()
    assert caplog.messages == []  # it never had a table, or they went with `migrate notes zero`
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE notes_note (id integer)")
    bring_up_to_date()
    assert "run ./hacrl manage migrate notes zero" in caplog.text
