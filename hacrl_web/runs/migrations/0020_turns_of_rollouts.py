from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0019_run_views"),
    ]

    operations = [
        migrations.AddField(
            model_name="rolloutsample",
            name="turns",
            field=models.TextField(null=True),
        ),
    ]
