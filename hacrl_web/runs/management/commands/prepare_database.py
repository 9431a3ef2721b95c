"""`manage.py prepare_database`: the database is as this code needs it, or the command says why it cannot be."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, connection

from hacrl_web.ops import schema

LOOK_EVERY_S = 1.0


class Command(BaseCommand):
    help = "Wait for the database and bring it up to date, one process at a time; a newer one is refused."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--wait-s", type=float, default=0, help="how long to wait for a database that is not there")
        parser.add_argument("--follow", action="store_true", help="let another process migrate, and wait for that")

    def handle(self, *args: Any, **options: Any) -> None:
        deadline = time.monotonic() + options["wait_s"]
        while True:
            try:
                if self._is_ready(follow=options["follow"]):
                    return
                missing = "The database is older than this code: start the web of this version first, it migrates."
            except schema.NewerDatabase as error:
                raise CommandError(str(error)) from None
            except (InterfaceError, OperationalError) as error:
                connection.close()
                missing = f"The database cannot be used: {error}"
            if time.monotonic() > deadline:
                raise CommandError(missing)
            time.sleep(LOOK_EVERY_S)

    def _is_ready(self, follow: bool) -> bool:
        """Errors: schema.NewerDatabase, OperationalError, InterfaceError."""
        if not follow:
            schema.bring_up_to_date()
            return True
        schema.refuse_newer()
        return not schema.pending()
