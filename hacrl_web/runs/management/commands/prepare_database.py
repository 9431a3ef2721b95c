"""`manage.py prepare_database`: bring the database to the state that this code needs."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, connection

from hacrl_web.ops import schema

RETRY_S = 1.0


class Command(BaseCommand):
    help = "Wait for the database and bring it up to date, one process at a time; a newer one is refused."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--wait-s", type=float, default=0, help="how long to wait for an unreachable database")
        parser.add_argument("--follow", action="store_true", help="let another process migrate, and wait for that")

    def handle(self, *args: Any, **options: Any) -> None:
        deadline = time.monotonic() + options["wait_s"]
        while True:
            try:
                if not options["follow"]:
                    schema.bring_up_to_date()
                    return
                schema.refuse_newer()
                if not schema.pending():
                    return
                missing = "The database is older than this code: start the web of this version first, it migrates."
            except (InterfaceError, OperationalError) as error:
                connection.close()
                missing = f"The database cannot be used: {error}"
            if time.monotonic() > deadline:
                raise CommandError(missing)
            time.sleep(RETRY_S)
