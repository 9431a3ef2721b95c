"""Every row joins its owner's project; names are unique within a project."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def join_projects(apps, schema_editor):
    Membership = apps.get_model("accounts", "Membership")
    own = Membership.objects.filter(user=OuterRef("owner"), role="admin").order_by("pk").values("project")[:1]
    for name in ("sweep", "run"):
        apps.get_model("runs", name).objects.update(project=Subquery(own))


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0011_cloned_from"),
        ("registry", "0006_projects"),
    ]

    operations = [
        migrations.RemoveIndex("run", "run_owner_created"),
        migrations.AddField(
            "sweep",
            "project",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"
            ),
        ),
        migrations.AddField(
            "run",
            "project",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"
            ),
        ),
        migrations.RunPython(join_projects, migrations.RunPython.noop),
        migrations.AlterField(
            "sweep",
            "project",
            models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"),
        ),
        migrations.AlterField(
            "run",
            "project",
            models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="accounts.project"),
        ),
        migrations.AddIndex("run", models.Index(fields=["project", "-created_at"], name="run_project_created")),
    ]
