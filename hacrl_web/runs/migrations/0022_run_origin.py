from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0021_sweep_draft"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="origin",
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AddField(
            model_name="run",
            name="agent_changes",
            field=models.JSONField(blank=True, default=dict),
        ),
    ]
