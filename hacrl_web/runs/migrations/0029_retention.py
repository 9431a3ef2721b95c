import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_provider_account"),
        ("runs", "0028_event_payload"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="files_removed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="files_removed_days",
            field=models.PositiveIntegerField(blank=True, null=True),
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
    ]
