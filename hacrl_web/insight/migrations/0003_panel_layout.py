"""The panels of the run pages of a project."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_squashed"),
        ("insight", "0002_drop_saved_queries"),
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
