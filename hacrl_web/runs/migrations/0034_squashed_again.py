"""All tables of this app, in place of its migrations until 26 November 2026; a database with those keeps its tables."""

import time
import uuid

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import hacrl_web.runs.models.events

_REPLACED = (
    "0001_start",
    "0002_host",
    "0003_contribution_rewards_lengths_capabilities",
    "0004_pause_and_queue",
    "0005_rollout_texts_kept",
    "0006_metric_chunks",
    "0007_rollouts_by_place_and_order",
    "0008_events_by_type_and_order",
    "0009_sweep_requests_and_variants",
    "0010_answers_of_evaluations",
    "0011_cloned_from",
    "0012_projects",
    "0013_tags_notes_archive",
    "0014_start_step",
    "0015_squashed",
    "0016_start_ratio_and_age",
    "0017_score",
    "0018_rewards_of_rollouts",
    "0019_run_views",
    "0020_turns_of_rollouts",
    "0021_sweep_draft",
    "0022_run_origin",
    "0023_contribution_importance",
    "0024_trials",
    "0025_rollout_benchmark",
    "0026_quotas",
    "0027_files_changed_at",
    "0028_event_payload",
    "0029_retention",
    "0030_deleted_runs",
    "0031_sweep_importance",
    "0032_run_faults",
    "0033_run_counts",
    "0034_deleted_counts",
)


class Migration(migrations.Migration):
    initial = True

    replaces = [("runs", name) for name in _REPLACED]

    dependencies = [
        ("accounts", "0006_squashed_again"),
        ("registry", "0014_squashed_again"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Host",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255, unique=True)),
                ("data_folder", models.CharField(blank=True, max_length=64)),
                ("boot_id", models.CharField(blank=True, max_length=64)),
                ("last_seen", models.DateTimeField(blank=True, null=True)),
                ("clock_offset_s", models.FloatField(blank=True, null=True)),
                ("schema", models.CharField(blank=True, max_length=120)),
                ("versions", models.JSONField(blank=True, default=dict)),
                ("devices", models.JSONField(blank=True, default=list)),
                (
                    "drain",
                    models.CharField(
                        choices=[("no", "No"), ("finish", "Finish"), ("now", "Now")], default="no", max_length=8
                    ),
                ),
                ("drain_reason", models.CharField(blank=True, max_length=255)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
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
                ],
            },
        ),
        migrations.CreateModel(
            name="Quota",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("running", models.PositiveIntegerField(blank=True, null=True)),
                ("waiting", models.PositiveIntegerField(blank=True, null=True)),
                ("gpu_hours", models.FloatField(blank=True, null=True)),
                ("disk_gib", models.FloatField(blank=True, null=True)),
                (
                    "project",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="quota", to="accounts.project"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Retention",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("checkpoint_days", models.PositiveIntegerField(blank=True, null=True)),
                ("archived_days", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "project",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="retention", to="accounts.project"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "Draft"),
                            ("queued", "Queued"),
                            ("starting", "Starting"),
                            ("running", "Running"),
                            ("paused", "Paused"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("stopped", "Stopped"),
                            ("lost", "Lost"),
                        ],
                        default="queued",
                        max_length=16,
                    ),
                ),
                (
                    "desired_state",
                    models.CharField(
                        choices=[("run", "Run"), ("pause", "Pause"), ("stop", "Stop")], default="run", max_length=8
                    ),
                ),
                ("desire_reason", models.TextField(blank=True)),
                ("attempt", models.PositiveIntegerField(default=0)),
                ("interruptions", models.PositiveIntegerField(default=0)),
                ("reason", models.TextField(blank=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("progress", models.JSONField(blank=True, default=dict)),
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=120)),
                ("variant", models.CharField(blank=True, max_length=120)),
                ("spec", models.JSONField()),
                ("agent_changes", models.JSONField(blank=True, default=dict)),
                ("algorithm", models.CharField(max_length=32)),
                ("seed", models.PositiveIntegerField()),
                ("start_step", models.PositiveIntegerField(default=0)),
                ("priority", models.IntegerField(default=0)),
                ("queue_key", models.FloatField(default=time.time)),
                ("worker_host", models.CharField(blank=True, max_length=255)),
                ("worker_pid", models.PositiveIntegerField(blank=True, null=True)),
                ("worker_started", models.FloatField(blank=True, null=True)),
                ("worker_boot", models.CharField(blank=True, max_length=64)),
                ("data_folder", models.CharField(blank=True, max_length=64)),
                ("heartbeat_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("last_seq", models.BigIntegerField(default=0)),
                ("spool_offset", models.BigIntegerField(default=0)),
                ("telemetry_lag_s", models.FloatField(blank=True, null=True)),
                ("num_incidents", models.PositiveIntegerField(default=0)),
                ("num_refused", models.PositiveIntegerField(default=0)),
                ("texts_from", models.PositiveIntegerField(default=0)),
                ("packed_seq", models.BigIntegerField(default=0)),
                ("step", models.PositiveIntegerField(default=0)),
                ("total_steps", models.PositiveIntegerField(default=0)),
                ("files_bytes", models.BigIntegerField(blank=True, null=True)),
                ("files_changed_at", models.DateTimeField(blank=True, null=True)),
                ("files_removed_at", models.DateTimeField(blank=True, null=True)),
                ("files_removed_days", models.PositiveIntegerField(blank=True, null=True)),
                ("score", models.FloatField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                ("tags", models.CharField(blank=True, max_length=450)),
                ("notes", models.TextField(blank=True)),
                ("archived_at", models.DateTimeField(blank=True, null=True)),
                ("origin", models.JSONField(blank=True, default=dict)),
                (
                    "benchmark",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="runs",
                        to="registry.benchmark",
                    ),
                ),
                (
                    "cloned_from",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="clones",
                        to="runs.run",
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="runs",
                        to="registry.agentgroup",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="runs", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"
                    ),
                ),
                (
                    "retry_of",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="retries",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="StatusChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("from_state", models.CharField(blank=True, max_length=16)),
                ("to_state", models.CharField(max_length=16)),
                ("attempt", models.PositiveIntegerField()),
                ("reason", models.TextField(blank=True)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="status_changes", to="runs.run"
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Sweep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=120)),
                ("request", models.JSONField(blank=True, default=dict)),
                ("draft_digest", models.CharField(blank=True, default="", max_length=64)),
                ("search_state", models.CharField(blank=True, db_index=True, default="", max_length=12)),
                ("search_reason", models.TextField(blank=True, default="")),
                ("importance", models.JSONField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="sweeps", to=settings.AUTH_USER_MODEL
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
                "ordering": ["-created_at", "-pk"],
            },
        ),
        migrations.AddField(
            model_name="run",
            name="sweep",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="runs",
                to="runs.sweep",
            ),
        ),
        migrations.CreateModel(
            name="TelemetryEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("attempt", models.PositiveIntegerField()),
                ("type", models.CharField(max_length=16)),
                ("step", models.PositiveIntegerField(null=True)),
                ("agent", models.CharField(blank=True, max_length=80)),
                ("source", models.CharField(blank=True, max_length=80)),
                ("payload", hacrl_web.runs.models.events.PayloadField()),
                ("time", models.FloatField()),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["seq"],
                "abstract": False,
            },
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
            },
        ),
        migrations.CreateModel(
            name="GpuUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run_id", models.UUIDField()),
                ("attempt", models.PositiveIntegerField()),
                ("gpus", models.FloatField()),
                ("from_at", models.DateTimeField()),
                ("until_at", models.DateTimeField()),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.project"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["project", "until_at"], name="gpu_use_project")],
                "constraints": [models.UniqueConstraint(fields=("run_id", "attempt"), name="gpu_use_once")],
            },
        ),
        migrations.CreateModel(
            name="RolloutSample",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("attempt", models.PositiveIntegerField()),
                ("step", models.PositiveIntegerField()),
                ("agent", models.CharField(max_length=80)),
                ("prompt_id", models.CharField(max_length=200)),
                ("sample", models.PositiveIntegerField()),
                ("prompt", models.TextField()),
                ("completion", models.TextField()),
                ("answer", models.TextField()),
                ("reward", models.FloatField(null=True)),
                ("finish_reason", models.CharField(max_length=16)),
                ("num_tokens", models.PositiveIntegerField()),
                ("mean_logp", models.FloatField(null=True)),
                ("rewards", models.TextField(null=True)),
                ("turns", models.TextField(null=True)),
                ("benchmark", models.CharField(max_length=120, null=True)),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rollouts",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["seq"],
                "abstract": False,
                "indexes": [
                    models.Index(fields=["run", "step", "agent", "prompt_id", "sample"], name="rollout_place"),
                    models.Index(fields=["run", "attempt", "step", "seq"], name="rollout_order"),
                ],
                "constraints": [models.UniqueConstraint(fields=("run", "seq"), name="rollout_once")],
            },
        ),
        migrations.CreateModel(
            name="QuestionChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("attempt", models.PositiveIntegerField()),
                ("benchmark", models.CharField(max_length=120)),
                ("first", models.PositiveIntegerField()),
                ("ids", models.TextField()),
                ("subjects", models.TextField()),
                ("difficulties", models.TextField()),
                ("answers", models.TextField()),
                ("questions", models.TextField()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="question_chunks",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["seq"],
                "abstract": False,
                "indexes": [models.Index(fields=["run", "benchmark", "first"], name="questions_place")],
                "constraints": [models.UniqueConstraint(fields=("run", "seq"), name="questions_once")],
            },
        ),
        migrations.CreateModel(
            name="MetricChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("attempt", models.PositiveIntegerField()),
                ("metric", models.CharField(max_length=200)),
                ("agent", models.CharField(max_length=80)),
                ("source", models.CharField(blank=True, max_length=80)),
                ("place", models.PositiveIntegerField()),
                ("first_step", models.PositiveIntegerField()),
                ("last_step", models.PositiveIntegerField()),
                ("count", models.PositiveIntegerField()),
                ("packed", models.BinaryField()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="metric_chunks",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["run", "metric", "agent", "source"], name="chunk_column")],
            },
        ),
        migrations.CreateModel(
            name="Contribution",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("attempt", models.PositiveIntegerField()),
                ("step", models.PositiveIntegerField()),
                ("agent", models.CharField(max_length=80)),
                ("source", models.CharField(max_length=80)),
                ("prompt_id", models.CharField(max_length=200)),
                ("sample", models.PositiveIntegerField()),
                ("num_tokens", models.PositiveIntegerField()),
                ("advantage", models.FloatField(null=True)),
                ("sequence_ratio", models.FloatField(null=True)),
                ("start_ratio", models.FloatField(null=True)),
                ("clipped_ratio", models.FloatField(null=True)),
                ("clip_side", models.CharField(max_length=8)),
                ("omega", models.FloatField(null=True)),
                ("weight", models.FloatField(null=True)),
                ("mini_batch", models.PositiveIntegerField(null=True)),
                ("drop_reason", models.CharField(blank=True, max_length=200, null=True)),
                ("reward", models.FloatField(null=True)),
                ("source_num_tokens", models.PositiveIntegerField(null=True)),
                ("alpha", models.FloatField(null=True)),
                ("capability", models.FloatField(null=True)),
                ("source_capability", models.FloatField(null=True)),
                ("age", models.PositiveIntegerField(null=True)),
                ("importance", models.FloatField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="contributions",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["seq"],
                "abstract": False,
                "indexes": [
                    models.Index(fields=["run", "step", "agent", "source", "prompt_id"], name="contribution_place"),
                    models.Index(fields=["run", "attempt", "step", "seq"], name="contribution_order"),
                ],
                "constraints": [models.UniqueConstraint(fields=("run", "seq"), name="contribution_once")],
            },
        ),
        migrations.CreateModel(
            name="AnswerChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("attempt", models.PositiveIntegerField()),
                ("step", models.PositiveIntegerField()),
                ("agent", models.CharField(max_length=80)),
                ("benchmark", models.CharField(max_length=120)),
                ("first", models.PositiveIntegerField()),
                ("marks", models.TextField()),
                ("majority", models.TextField()),
                ("responses", models.TextField()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="answer_chunks",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["seq"],
                "abstract": False,
                "indexes": [models.Index(fields=["run", "benchmark", "step", "first"], name="answers_place")],
                "constraints": [models.UniqueConstraint(fields=("run", "seq"), name="answers_once")],
            },
        ),
        migrations.CreateModel(
            name="RunView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("query", models.TextField(blank=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
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
                "constraints": [models.UniqueConstraint(fields=("project", "name"), name="run_view_name")],
            },
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["project", "-created_at"], name="run_project_created"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["-created_at"], name="run_created"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["state", "-priority", "queue_key"], name="run_queue"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["state", "-finished_at"], name="run_finished"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["project", "deleted_at", "archived_at", "state", "tags"], name="run_counts"),
        ),
        migrations.AddIndex(
            model_name="telemetryevent",
            index=models.Index(fields=["run", "type", "agent", "source", "step"], name="event_metrics"),
        ),
        migrations.AddIndex(
            model_name="telemetryevent",
            index=models.Index(fields=["run", "type", "seq"], name="event_type_seq"),
        ),
        migrations.AddConstraint(
            model_name="telemetryevent",
            constraint=models.UniqueConstraint(fields=("run", "seq"), name="event_once"),
        ),
        migrations.AddConstraint(
            model_name="trial",
            constraint=models.UniqueConstraint(fields=("sweep", "number"), name="trial_once"),
        ),
    ]
