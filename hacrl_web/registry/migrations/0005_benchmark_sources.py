from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("registry", "0004_model_provenance"),
    ]

    operations = [
        migrations.AlterField(
            model_name="benchmark",
            name="verifier",
            field=models.CharField(default="math", max_length=16),
        ),
        migrations.AddField(
            model_name="benchmark",
            name="prompt_template",
            field=models.TextField(default="{question}"),
        ),
        migrations.AddField(
            model_name="benchmark",
            name="tolerance",
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="benchmark",
            name="source",
            field=models.CharField(blank=True, max_length=1000),
        ),
        migrations.AddField(
            model_name="benchmark",
            name="questions_sha",
            field=models.CharField(blank=True, max_length=64),
        ),
    ]
