"""`manage.py watch`: the process that raises alerts and sends notifications, until it is told to end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand
from django.db import Error, connection

from hacrl_web.alerts.evaluate import Evaluator
from hacrl_web.alerts.notify import Notifier
from hacrl_web.alerts.send import send_due

log = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Look at the metrics of all runs for alerts, and send what users want to be told, until ended."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--interval", type=float, default=1.0, help="seconds between two looks")

    def handle(self, *args: Any, **options: Any) -> None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        # Sending waits for other hosts, so it has a thread of its own: it never delays an alert.
        sender = threading.Thread(target=_repeat, args=(send_due, ended, options["interval"]), daemon=True)
        sender.start()
        evaluator, notifier = Evaluator(), Notifier()

        def look() -> None:
            evaluator.tick()
            notifier.tick()

        _repeat(look, ended, options["interval"])


def _repeat(act: Callable[[], Any], ended: threading.Event, interval_s: float) -> None:
    while not ended.is_set():
        try:
            act()
        except Error as error:
            log.warning("the database does not answer (%s); trying again", error)
            connection.close()
        except Exception:
            log.exception("a look failed; trying again")
        ended.wait(interval_s)
