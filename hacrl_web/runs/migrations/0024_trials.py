import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0023_contribution_importance"),
    ]

    operations = [
        migrations.AddField(
            model_name="sweep",
            name="search_reason",
            field=models.TextField(blank=True, default=""),
        ),
        migrations.AddField(
            model_name="sweep",
            name="search_state",
            field=models.CharField(blank=True, db_index=True, default="", max_length=12),
        ),
        migrations.CreateModel(
            name="Trial",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("parameters", models.JSONField(default=dict)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("pruned", "Pruned"),
                            ("failed", "Failed"),
                            ("stopped", "Stopped"),
                        ],
                        db_index=True,
                        default="running",
                        max_length=12,
                    ),
                ),
                ("value", models.FloatField(null=True)),
                ("scores", models.JSONField(default=dict)),
                ("rungs", models.JSONField(default=dict)),
                ("pruned_step", models.PositiveIntegerField(null=True)),
                ("reason", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="trials",
                        to="runs.run",
                    ),
                ),
                (
                    "sweep",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="trials", to="runs.sweep"
                    ),
                ),
            ],
            options={
                "ordering": ["number"],
                "constraints": [models.UniqueConstraint(fields=("sweep", "number"), name="trial_once")],
            },
        ),
    ]
