from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("registry", "0002_benchmark_facts"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="settings",
            field=models.JSONField(blank=True, default=dict),
        ),
    ]
