"""`manage.py drain HOST [--now | --off]`: a host takes no more runs, before it is switched off or updated."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from hacrl_web.runs.models import HELD, Drain, Host, Run
from hacrl_web.runs.worker.hosts import host_name, set_drain


class Command(BaseCommand):
    help = "Let a host take no new runs; running ones train to their end, or with --now go back to the queue."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("host", nargs="?", default=host_name(), help="default: this one")
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--now", action="store_true", help="save running ones after their step and requeue them")
        mode.add_argument("--off", action="store_true", help="let it take runs again")
        parser.add_argument("--why", default="", help="shown on the Workers page")

    def handle(self, *args: Any, **options: Any) -> None:
        host = Host.objects.filter(name=options["host"]).first()
        if host is None:
            names = ", ".join(Host.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"There is no host {options['host']!r}; known hosts: {names}")
        drain = Drain.NO if options["off"] else Drain.NOW if options["now"] else Drain.FINISH
        why = f": {options['why']}" if options["why"] else ""
        set_drain(host, drain, f"drained by manage.py{why}")
        held = Run.objects.filter(state__in=HELD, worker_host=host.name).count()
        if drain == Drain.NO:
            self.stdout.write(f"{host.name} takes runs again")
        else:
            verb = "go back to the queue after their step" if drain == Drain.NOW else "train to their end"
            self.stdout.write(f"{host.name} takes no new run; runs that {verb}: {held}")
