"""The step of the checkpoint that a run goes on from, where another run made it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0013_tags_notes_archive")]

    operations = [
        migrations.AddField("run", "start_step", models.PositiveIntegerField(default=0)),
    ]
