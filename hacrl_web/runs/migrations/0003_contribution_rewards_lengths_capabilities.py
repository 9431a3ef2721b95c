from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0002_host"),
    ]

    operations = [
        migrations.AddField(
            model_name="contribution",
            name="alpha",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="contribution",
            name="capability",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="contribution",
            name="reward",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="contribution",
            name="source_capability",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="contribution",
            name="source_num_tokens",
            field=models.PositiveIntegerField(null=True),
        ),
    ]
