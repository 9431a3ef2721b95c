"""`manage.py forget_host HOST`: removes a host that is gone from the Workers page, from metrics and from checks."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from hacrl_web.runs.worker.hosts import remove_silent
from hacrl_web.web.errors import FieldErrors


class Command(BaseCommand):
    help = "Remove a host whose heartbeat has stopped and that holds no runs."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("host")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            remove_silent(options["host"])
        except FieldErrors as refused:
            raise CommandError(refused.text) from None
        self.stdout.write(f"{options['host']} is forgotten")
