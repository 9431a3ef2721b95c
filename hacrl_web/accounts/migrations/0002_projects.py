"""Projects with members, invitations, and the audit log; each user who is there gets a project of the own."""

import django.core.serializers.json
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import hacrl_web.accounts.models


def give_projects(apps, schema_editor):
    """Each user gets a project of the own, which the rows of the other apps join."""
    User = apps.get_model("accounts", "User")
    Project = apps.get_model("accounts", "Project")
    Membership = apps.get_model("accounts", "Membership")
    for user in User.objects.order_by("pk"):
        project = Project.objects.create(name=f"{user.username[:70]}'s project")
        Membership.objects.create(project=project, user=user, role="admin")


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_start"),
    ]

    operations = [
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name", "pk"],
            },
        ),
        migrations.AlterModelManagers(
            name="user",
            managers=[
                ("objects", hacrl_web.accounts.models.PeopleManager()),
            ],
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("actor_id", models.BigIntegerField(null=True)),
                ("actor", models.CharField(max_length=200)),
                ("via", models.CharField(max_length=8)),
                ("address", models.CharField(blank=True, max_length=45)),
                ("action", models.CharField(max_length=32)),
                ("kind", models.CharField(max_length=40)),
                ("object_id", models.CharField(blank=True, max_length=40)),
                ("name", models.CharField(blank=True, max_length=200)),
                ("project_id", models.BigIntegerField(null=True)),
                ("before", models.JSONField(default=dict, encoder=django.core.serializers.json.DjangoJSONEncoder)),
                ("after", models.JSONField(default=dict, encoder=django.core.serializers.json.DjangoJSONEncoder)),
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(fields=["project_id", "-id"], name="audit_project"),
                    models.Index(fields=["actor", "-id"], name="audit_actor"),
                    models.Index(fields=["kind", "object_id", "-id"], name="audit_object"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[("viewer", "Viewer"), ("member", "Member"), ("admin", "Admin")], max_length=8
                    ),
                ),
                ("comment", models.CharField(blank=True, max_length=80)),
                ("token_hash", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "inviter",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "used_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="invitations", to="accounts.project"
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
        migrations.AddField(
            model_name="user",
            name="chosen_project",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="accounts.project",
            ),
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[("viewer", "Viewer"), ("member", "Member"), ("admin", "Admin")], max_length=8
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="memberships", to="accounts.project"
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [models.UniqueConstraint(fields=("user", "project"), name="member_once")],
            },
        ),
        migrations.RunPython(give_projects, migrations.RunPython.noop),
    ]
