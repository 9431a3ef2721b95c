"""An index of what the list of runs counts: their states, archived ones and tags."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0032_run_faults")]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["project", "deleted_at", "archived_at", "state", "tags"], name="run_counts"),
        ),
    ]
