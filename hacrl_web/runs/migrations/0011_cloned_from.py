import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0010_answers_of_evaluations")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="cloned_from",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="clones",
                to="runs.run",
            ),
        ),
    ]
