"""A mirror keeps one cursor for each run, and why nothing arrives; when it tries again, the follower knows.

The cursors stay as they are: `seq` was, and is, the last event that the destination has.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("mirrors", "0003_squashed_again")]

    operations = [
        migrations.RenameField("mirror", "problem", "silence"),
        *(
            migrations.RemoveField(model, name)
            for model, names in (
                ("mirror", ("tries", "next_try_at")),
                ("mirrorcursor", ("read_seq", "tries", "next_try_at")),
            )
            for name in names
        ),
    ]
