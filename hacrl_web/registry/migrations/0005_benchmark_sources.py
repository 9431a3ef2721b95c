from django.db import migrations, models

VERIFIERS = [
    ("math", "math: equality of the last boxed answer"),
    ("exact", "exact: the same text"),
    ("choice", "choice: the letter of a multiple choice"),
    ("numeric", "numeric: a number, within a relative tolerance"),
    ("regex", "regex: the reference answer is a regular expression"),
    ("python", "python: the reference answer is tests that the response's code must pass"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("registry", "0004_model_provenance"),
    ]

    operations = [
        migrations.AlterField(
            model_name="benchmark",
            name="verifier",
            field=models.CharField(choices=VERIFIERS, default="math", max_length=16),
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
