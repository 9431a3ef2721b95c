"""All tables of this app, in place of its migrations until 26 November 2026; a database with those keeps its tables."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

_REPLACED = (
    "0001_mirrors",
    "0002_silent_destination",
    "0003_mirror_rollouts",
)


class Migration(migrations.Migration):
    initial = True

    replaces = [("mirrors", name) for name in _REPLACED]

    dependencies = [
        ("accounts", "0006_squashed_again"),
        ("runs", "0034_squashed_again"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Mirror",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("kind", models.CharField(max_length=16)),
                ("options", models.JSONField(blank=True, default=dict)),
                ("ciphertext", models.TextField(blank=True)),
                (
                    "sends",
                    models.CharField(
                        choices=[("new", "every run from now on"), ("chosen", "chosen runs only")],
                        default="new",
                        max_length=8,
                    ),
                ),
                ("rollouts", models.PositiveIntegerField(default=0)),
                ("rollout_interval", models.PositiveIntegerField(default=1)),
                ("is_enabled", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("problem", models.CharField(blank=True, max_length=400)),
                ("tries", models.PositiveIntegerField(default=0)),
                ("next_try_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="mirrors", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"
                    ),
                ),
            ],
            options={
                "ordering": ["name", "pk"],
            },
        ),
        migrations.CreateModel(
            name="MirrorCursor",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "choice",
                    models.CharField(
                        choices=[("default", "as the mirror says"), ("on", "yes"), ("off", "no")],
                        default="default",
                        max_length=8,
                    ),
                ),
                ("seq", models.BigIntegerField(default=0)),
                ("read_seq", models.BigIntegerField(default=0)),
                ("step", models.PositiveIntegerField(default=0)),
                ("state", models.JSONField(blank=True, default=dict)),
                ("url", models.CharField(blank=True, max_length=500)),
                ("is_done", models.BooleanField(default=False)),
                ("problem", models.CharField(blank=True, max_length=400)),
                ("tries", models.PositiveIntegerField(default=0)),
                ("next_try_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                (
                    "mirror",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="cursors", to="mirrors.mirror"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="mirror_cursors", to="runs.run"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="mirror",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="mirror_name_per_project"),
        ),
        migrations.AddConstraint(
            model_name="mirrorcursor",
            constraint=models.UniqueConstraint(fields=("mirror", "run"), name="mirror_cursor_once"),
        ),
    ]
