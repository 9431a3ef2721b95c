"""What people write on a run, and whether lists leave it out."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_projects")]

    operations = [
        migrations.AddField("run", "tags", models.CharField(blank=True, default="", max_length=450), False),
        migrations.AddField("run", "notes", models.TextField(blank=True, default=""), False),
        migrations.AddField("run", "archived_at", models.DateTimeField(blank=True, null=True)),
    ]
