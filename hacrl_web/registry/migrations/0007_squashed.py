"""All tables of this app, in place of its migrations up to version 0.1.0; a database with those keeps its tables."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("registry", "0001_start"),
        ("registry", "0002_benchmark_facts"),
        ("registry", "0003_agent_settings"),
        ("registry", "0004_model_provenance"),
        ("registry", "0005_benchmark_sources"),
        ("registry", "0006_projects"),
    ]

    dependencies = [
        ("accounts", "0004_squashed"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="AgentGroup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="agent_groups",
                        to=settings.AUTH_USER_MODEL,
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
        migrations.CreateModel(
            name="Benchmark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("train_path", models.CharField(max_length=1000)),
                ("eval_path", models.CharField(blank=True, max_length=1000)),
                ("held_out_fraction", models.FloatField(default=0.1)),
                ("question_field", models.CharField(default="question", max_length=120)),
                ("answer_field", models.CharField(default="answer", max_length=120)),
                ("prompt_template", models.TextField(default="{question}")),
                ("verifier", models.CharField(default="math", max_length=16)),
                ("tolerance", models.FloatField(blank=True, null=True)),
                ("num_train", models.PositiveIntegerField(default=0)),
                ("num_held_out", models.PositiveIntegerField(default=0)),
                ("sample", models.JSONField(default=list)),
                ("facts", models.JSONField(default=dict)),
                ("source", models.CharField(blank=True, max_length=1000)),
                ("questions_sha", models.CharField(blank=True, max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="benchmarks",
                        to=settings.AUTH_USER_MODEL,
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
        migrations.CreateModel(
            name="LanguageModel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                (
                    "kind",
                    models.CharField(
                        choices=[("local", "local folder"), ("hub", "hub id")], default="local", max_length=8
                    ),
                ),
                ("location", models.CharField(max_length=1000)),
                ("revision", models.CharField(blank=True, max_length=200)),
                ("architecture", models.CharField(blank=True, max_length=200)),
                ("num_parameters", models.BigIntegerField(blank=True, null=True)),
                ("vocab_size", models.BigIntegerField(blank=True, null=True)),
                ("tokenizer_hash", models.CharField(blank=True, max_length=128)),
                ("has_chat_template", models.BooleanField(default=False)),
                ("context_length", models.BigIntegerField(blank=True, null=True)),
                ("facts", models.JSONField(default=dict)),
                ("provenance", models.JSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="language_models",
                        to=settings.AUTH_USER_MODEL,
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
        migrations.CreateModel(
            name="Agent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("position", models.PositiveSmallIntegerField()),
                ("learning_rate", models.FloatField(blank=True, null=True)),
                (
                    "prompt_format",
                    models.CharField(
                        choices=[
                            ("auto", "auto: chat where the tokenizer has a template"),
                            ("chat", "chat template"),
                            ("plain", "plain text"),
                        ],
                        default="auto",
                        max_length=8,
                    ),
                ),
                ("settings", models.JSONField(blank=True, default=dict)),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="agents", to="registry.agentgroup"
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="agents", to="registry.languagemodel"
                    ),
                ),
            ],
            options={
                "ordering": ["position"],
            },
        ),
        migrations.CreateModel(
            name="PairInspection",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("facts", models.JSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model_a",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="registry.languagemodel"
                    ),
                ),
                (
                    "model_b",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="registry.languagemodel"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="agentgroup",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="agent_group_name_per_project"),
        ),
        migrations.AddConstraint(
            model_name="benchmark",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="benchmark_name_per_project"),
        ),
        migrations.AddConstraint(
            model_name="languagemodel",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="language_model_name_per_project"),
        ),
        migrations.AddConstraint(
            model_name="agent",
            constraint=models.UniqueConstraint(fields=("group", "name"), name="agent_name_per_group"),
        ),
        migrations.AddConstraint(
            model_name="agent",
            constraint=models.UniqueConstraint(fields=("group", "position"), name="agent_position_per_group"),
        ),
        migrations.AddConstraint(
            model_name="pairinspection",
            constraint=models.UniqueConstraint(fields=("model_a", "model_b"), name="pair_inspected_once"),
        ),
    ]
