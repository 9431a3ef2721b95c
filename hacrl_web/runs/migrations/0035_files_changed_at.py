"""GGUF files are no longer made: a run whose files one has changed is measured once more."""

from typing import Any

from django.db import migrations


def measure_again(apps: Any, _: Any) -> None:
    changed = apps.get_model("runs", "Run").objects.exclude(files_changed_at=None)
    changed.update(files_bytes=None)


class Migration(migrations.Migration):
    dependencies = [("runs", "0034_squashed_again")]

    operations = [
        migrations.RunPython(measure_again, migrations.RunPython.noop),
        migrations.RemoveField("run", "files_changed_at"),
    ]
