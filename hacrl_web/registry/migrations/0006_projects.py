"""Every row joins its owner's project; names are unique within a project."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def join_projects(apps, schema_editor):
    Membership = apps.get_model("accounts", "Membership")
    own = Membership.objects.filter(user=OuterRef("owner"), role="admin").order_by("pk").values("project")[:1]
    for name in ("languagemodel", "agentgroup", "benchmark"):
        apps.get_model("registry", name).objects.update(project=Subquery(own))


class Migration(migrations.Migration):
    dependencies = [
        ("registry", "0005_benchmark_sources"),
        ("accounts", "0002_projects"),
    ]

    operations = [
        migrations.RemoveConstraint("languagemodel", "language_model_name_per_owner"),
        migrations.RemoveConstraint("agentgroup", "agent_group_name_per_owner"),
        migrations.RemoveConstraint("benchmark", "benchmark_name_per_owner"),
        migrations.AddField(
            "languagemodel",
            "project",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"
            ),
        ),
        migrations.AddField(
            "agentgroup",
            "project",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"
            ),
        ),
        migrations.AddField(
            "benchmark",
            "project",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"
            ),
        ),
        migrations.RunPython(join_projects, migrations.RunPython.noop),
        migrations.AlterField(
            "languagemodel",
            "project",
            models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"),
        ),
        migrations.AlterField(
            "agentgroup",
            "project",
            models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"),
        ),
        migrations.AlterField(
            "benchmark",
            "project",
            models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"),
        ),
        migrations.AddConstraint(
            "languagemodel", models.UniqueConstraint(fields=("project", "name"), name="language_model_name_per_project")
        ),
        migrations.AddConstraint(
            "agentgroup", models.UniqueConstraint(fields=("project", "name"), name="agent_group_name_per_project")
        ),
        migrations.AddConstraint(
            "benchmark", models.UniqueConstraint(fields=("project", "name"), name="benchmark_name_per_project")
        ),
    ]
