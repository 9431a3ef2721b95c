"""`manage.py dispatch`: the dispatcher process, until it is told to end."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand
from django.db import Error, connection

from hacrl_web.runs.dispatcher import Dispatcher

log = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Ring for queued runs and take back lost ones, until ended."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--interval", type=float, default=0.5, help="seconds between two looks")

    def handle(self, *args: Any, **options: Any) -> None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        dispatcher = Dispatcher()
        while not ended.is_set():
            try:
                dispatcher.tick()
            except Error as error:
                log.warning("the database does not answer (%s); trying again", error)
                connection.close()
            ended.wait(options["interval"])
