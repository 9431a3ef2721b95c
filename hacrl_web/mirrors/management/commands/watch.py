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
from hacrl_web.mirrors.follower import MirrorFollowers
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
        # It waits for other hosts, so it has its own thread and never delays an alert; so has each mirror.
        threading.Thread(target=repeat, args=([send_due], ended, options["interval"]), daemon=True).start()
        mirrors = MirrorFollowers()
        acts = [Evaluator().tick, Notifier().tick, mirrors.tick]
        repeat(acts, ended, options["interval"], liveness_file())
        mirrors.stop()
