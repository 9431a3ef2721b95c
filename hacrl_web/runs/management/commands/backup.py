"""`manage.py backup FILE`: the database as one file, while the product runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from hacrl_web.ops.backups import back_up


class Command(BaseCommand):
    help = (
        "Write the database to a new file. "
        "Copy runs/, models/, benchmarks/, reward_functions/, judges/ and secret_key of the data folder too."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="the new file")

    def handle(self, *args: Any, **options: Any) -> None:
        back_up(options["file"])
        self.stdout.write(f"{options['file']}: {options['file'].stat().st_size:,} bytes")
