"""`manage.py dispatch`: the dispatcher process."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from hacrl_web.features import feature_modules
from hacrl_web.ops.loop import liveness_file, repeat
from hacrl_web.runs.archive.leftover_files import DeletedRuns
from hacrl_web.runs.sweeps.advance import SearchAdvancer
from hacrl_web.runs.telemetry.table_upkeep import TableUpkeep
from hacrl_web.runs.worker.dispatcher import Dispatcher
from hacrl_web.runs.worker.usage import UnmeasuredFiles


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # prepare_database has made them
    help = "Notify workers, requeue lost runs, advance searches, clear old texts and apply retention, until ended."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--interval", type=float, default=0.5, help="seconds between two ticks")

    def handle(self, *args: Any, **options: Any) -> None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        # In a thread, as a large folder takes minutes. It ends with the process, and the next one continues.
        slow_acts = [DeletedRuns().tick, UnmeasuredFiles().tick, *(one.upkeep() for one in feature_modules("upkeep"))]
        threading.Thread(target=repeat, args=(slow_acts, ended, options["interval"]), daemon=True).start()
        acts = [Dispatcher().tick, SearchAdvancer().tick, TableUpkeep().tick]
        repeat(acts, ended, options["interval"], liveness_file())
