"""`manage.py restore FILE`: a backup replaces the database, while the product is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from hacrl_web.ops.backups import restore


class Command(BaseCommand):
    help = "Replace the database by a backup of the same kind (SQLite or PostgreSQL). The next start migrates it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="a file of `backup`")

    def handle(self, *args: Any, **options: Any) -> None:
        replaced = restore(options["file"])
        self.stdout.write("Restored." + (f" The earlier database: {replaced}" if replaced else ""))
