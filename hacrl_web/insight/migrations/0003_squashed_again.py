"""All tables of this app, in place of its migrations until 26 November 2026; a database with those keeps its tables."""

import django.db.models.deletion
from django.db import migrations, models

_REPLACED = (
    "0001_saved_queries",
    "0002_drop_saved_queries",
    "0003_panel_layout",
)


class Migration(migrations.Migration):
    initial = True

    replaces = [("insight", name) for name in _REPLACED]

    dependencies = [
        ("accounts", "0006_squashed_again"),
    ]

    operations = [
        migrations.CreateModel(
            name="PanelLayout",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("panels", models.TextField(blank=True)),
                (
                    "project",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="panel_layout", to="accounts.project"
                    ),
                ),
            ],
        ),
    ]
