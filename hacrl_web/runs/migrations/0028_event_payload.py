"""PostgreSQL: the payload of events becomes json, and their run is no longer checked row by row.

SQLite's table stays as it is: JSON is text there, and making the table anew would copy every event.
"""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

import hacrl_web.runs.models.events


def _alter(kind: str, schema_editor: Any) -> None:
    schema_editor.execute(
        f'ALTER TABLE "runs_telemetryevent" ALTER COLUMN "payload" TYPE {kind} USING "payload"::{kind}'
    )


def forwards(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        model = apps.get_model("runs", "TelemetryEvent")
        for name in schema_editor._constraint_names(model, ["run_id"], foreign_key=True):
            schema_editor.execute(f'ALTER TABLE "runs_telemetryevent" DROP CONSTRAINT "{name}"')
        _alter("json", schema_editor)


def backwards(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        _alter("jsonb", schema_editor)


class Migration(migrations.Migration):
    dependencies = [("runs", "0027_files_changed_at")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(forwards, backwards)],
            state_operations=[
                migrations.AlterField(
                    model_name="telemetryevent",
                    name="payload",
                    field=hacrl_web.runs.models.events.PayloadField(),
                ),
                migrations.AlterField(
                    model_name="telemetryevent",
                    name="run",
                    field=models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="runs.run",
                    ),
                ),
            ],
        )
    ]
