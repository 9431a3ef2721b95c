"""All tables of this app, in place of its migrations until 26 November 2026; a database with those keeps its tables."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

_REPLACED = (
    "0001_start",
    "0002_benchmark_facts",
    "0003_agent_settings",
    "0004_model_provenance",
    "0005_benchmark_sources",
    "0006_projects",
    "0007_squashed",
    "0008_system_prompt",
    "0009_extraction",
    "0010_hub_token",
    "0011_reward_function",
    "0012_benchmark_reward_function",
    "0013_judge",
    "0014_versions",
)


class Migration(migrations.Migration):
    initial = True

    replaces = [("registry", name) for name in _REPLACED]

    dependencies = [
        ("accounts", "0006_squashed_again"),
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
                    "edit_of",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="edits",
                        to="registry.agentgroup",
                    ),
                ),
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
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="HubToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("ciphertext", models.TextField()),
                ("hub_name", models.CharField(blank=True, max_length=200)),
                ("problem", models.CharField(blank=True, max_length=300)),
                ("set_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("checked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "project",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="hub_token",
                        to="accounts.project",
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="hub_token",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Judge",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("settings", models.JSONField()),
                ("sha256", models.CharField(max_length=64)),
                ("ciphertext", models.TextField(blank=True, default="")),
                ("key_set_at", models.DateTimeField(blank=True, null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="judges", to=settings.AUTH_USER_MODEL
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
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="JudgeVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sha256", models.CharField(max_length=64)),
                ("settings", models.JSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "author",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "judge",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="registry.judge"
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
                ("created_at", models.DateTimeField(auto_now_add=True)),
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
                "abstract": False,
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
        migrations.CreateModel(
            name="RewardFunction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("text", models.TextField()),
                ("sha256", models.CharField(max_length=64)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="reward_functions",
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
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Benchmark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("train_path", models.CharField(max_length=1000)),
                ("eval_path", models.CharField(blank=True, max_length=1000)),
                ("held_out_fraction", models.FloatField(default=0.1)),
                ("question_field", models.CharField(default="question", max_length=120)),
                ("answer_field", models.CharField(default="answer", max_length=120)),
                ("prompt_template", models.TextField(default="{question}")),
                ("system_prompt", models.TextField(blank=True, default="")),
                ("verifier", models.CharField(default="math", max_length=16)),
                ("tolerance", models.FloatField(blank=True, null=True)),
                ("extraction", models.CharField(default="strict", max_length=16)),
                ("num_train", models.PositiveIntegerField(default=0)),
                ("num_held_out", models.PositiveIntegerField(default=0)),
                ("sample", models.JSONField(default=list)),
                ("facts", models.JSONField(default=dict)),
                ("source", models.CharField(blank=True, max_length=1000)),
                ("questions_sha", models.CharField(blank=True, max_length=64)),
                (
                    "edit_of",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="edits",
                        to="registry.benchmark",
                    ),
                ),
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
                (
                    "judge",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="benchmarks",
                        to="registry.judge",
                    ),
                ),
                (
                    "reward_function",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="benchmarks",
                        to="registry.rewardfunction",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-pk"],
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="RewardFunctionVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sha256", models.CharField(max_length=64)),
                ("text", models.TextField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "author",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "function",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="registry.rewardfunction",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-pk"],
            },
        ),
        migrations.AddConstraint(
            model_name="agentgroup",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="agent_group_name_per_project"),
        ),
        migrations.AddConstraint(
            model_name="hubtoken",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("project__isnull", False), ("user", None)),
                    models.Q(("project", None), ("user__isnull", False)),
                    _connector="OR",
                ),
                name="hub_token_of_one_owner",
            ),
        ),
        migrations.AddConstraint(
            model_name="judge",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="judge_name_per_project"),
        ),
        migrations.AddConstraint(
            model_name="judgeversion",
            constraint=models.UniqueConstraint(fields=("judge", "sha256"), name="judge_version_once"),
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
        migrations.AddConstraint(
            model_name="rewardfunction",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="reward_function_name_per_project"),
        ),
        migrations.AddConstraint(
            model_name="benchmark",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="benchmark_name_per_project"),
        ),
        migrations.AddConstraint(
            model_name="rewardfunctionversion",
            constraint=models.UniqueConstraint(fields=("function", "sha256"), name="reward_function_version_once"),
        ),
    ]
