from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0029_retention")]

    operations = [migrations.AddField("sweep", "importance", models.JSONField(blank=True, null=True))]
