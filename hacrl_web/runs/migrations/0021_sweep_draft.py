from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0020_turns_of_rollouts"),
    ]

    operations = [
        migrations.AddField(
            model_name="sweep",
            name="draft_digest",
            field=models.CharField(blank=True, default="", max_length=64),
        ),
    ]
