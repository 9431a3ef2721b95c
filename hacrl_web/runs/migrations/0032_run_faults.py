from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0031_sweep_importance")]

    operations = [
        migrations.AddField("run", "telemetry_lag_s", models.FloatField(blank=True, null=True)),
        migrations.AddField("run", "num_incidents", models.PositiveIntegerField(default=0)),
        migrations.AddField("run", "num_refused", models.PositiveIntegerField(default=0)),
    ]
