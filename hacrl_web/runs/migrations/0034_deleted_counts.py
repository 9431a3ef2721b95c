"""Counts of deleted runs: what monitoring counts never falls."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0033_run_counts")]

    operations = [
        migrations.CreateModel(
            name="DeletedCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=24)),
                ("from_state", models.CharField(blank=True, max_length=16)),
                ("to_state", models.CharField(blank=True, max_length=16)),
                ("count", models.BigIntegerField(default=0)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "from_state", "to_state"), name="deleted_count_once")
                ]
            },
        ),
    ]
