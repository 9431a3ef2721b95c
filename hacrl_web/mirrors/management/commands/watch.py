"""`manage.py watch`: the process that evaluates alert rules, sends notifications and serves mirrors, until a signal
ends it."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from hacrl_web.alerts.evaluate import Evaluator
from hacrl_web.alerts.notify import Notifier
from hacrl_web.alerts.send import send_due
from hacrl_web.mirrors.rounds import MirrorScheduler
from hacrl_web.ops.loop import liveness_file, repeat


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # prepare_database has made them
    help = "Evaluate the alert rules of all runs, send notifications and serve mirrors, until ended."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--interval", type=float, default=1.0, help="seconds between two evaluations")

    def handle(self, *args: Any, **options: Any) -> None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        # Both wait for other hosts, so each has its own thread and never delays an alert.
        mirrors = MirrorScheduler()
        for act in (send_due, mirrors.tick):
            threading.Thread(target=repeat, args=([act], ended, options["interval"]), daemon=True).start()
        repeat([Evaluator().tick, Notifier().tick], ended, options["interval"], liveness_file())
        mirrors.stop()
