from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("mirrors", "0002_silent_destination"),
    ]

    operations = [
        migrations.AddField(
            model_name="mirror",
            name="rollouts",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="mirror",
            name="rollout_interval",
            field=models.PositiveIntegerField(default=1),
        ),
    ]
