from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0030_deleted_runs")]

    operations = [migrations.AddField("sweep", "importance", models.JSONField(blank=True, null=True))]
