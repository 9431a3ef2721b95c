from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_provider_account"),
    ]

    operations = [
        migrations.AddField(
            model_name="user",
            name="provider_seen_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
