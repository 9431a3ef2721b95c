from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0008_events_by_type_and_order")]

    operations = [
        migrations.AddField(model_name="sweep", name="request", field=models.JSONField(blank=True, default=dict)),
        # The default is for the runs of before only: a run that names no variant is of its algorithm's.
        migrations.AddField(
            model_name="run",
            name="variant",
            field=models.CharField(blank=True, default="", max_length=120),
            preserve_default=False,
        ),
    ]
