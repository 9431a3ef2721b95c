"""`manage.py restore FILE`: a backup in the place of the database, with the product stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from hacrl_web.ops.backups import BackupError, restore


class Command(BaseCommand):
    help = "Replace the database by a backup of the same kind (SQLite or PostgreSQL). The next start migrates it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="what `backup` has written")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            replaced = restore(options["file"])
        except BackupError as error:
            raise CommandError(str(error)) from None
        self.stdout.write("Restored." + (f" What stood there before: {replaced}" if replaced else ""))
