"""`manage.py watch`: the process that does the lasting work of the features, until a signal ends it."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from typing import Any

from django.core.management.base import BaseCommand

from hacrl_web.features import feature_modules
from hacrl_web.ops.loop import liveness_file, repeat


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # prepare_database has made them
    help = "Evaluate the alert rules of all runs, send notifications and serve mirrors, until ended."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--interval", type=float, default=1.0, help="seconds between two evaluations")

    def handle(self, *args: Any, **options: Any) -> None:
        ended, interval = threading.Event(), options["interval"]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        with ExitStack() as stack:
            watches = [stack.enter_context(one.watching(ended, interval)) for one in feature_modules("watch")]
            repeat([act for acts in watches for act in acts], ended, interval, liveness_file())
